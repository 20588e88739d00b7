create or replace function public.registry_news(known_seq bigint default 0, signers_since bigint default 0) returns jsonb
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.registry_news(registry_news.known_seq, registry_news.signers_since) $$;
comment on function public.registry_news is 'What a client that remembers this registry has to know: audit head, hash at a known record, keys that lost trust.';
