create or replace function public.registry_checkpoint(
    known_seq bigint default 0, signers_since bigint default 0
) returns jsonb
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.registry_checkpoint(registry_checkpoint.known_seq, registry_checkpoint.signers_since) $$;
comment on function public.registry_checkpoint is 'What a client that pinned this registry has to know: audit head, hash at a known record, keys that lost trust.';
