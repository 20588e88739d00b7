create or replace function public.collection_statistics(
    terms text[], model_fingerprint text default null, collection text default 'items'
) returns jsonb
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.collection_statistics(
            collection_statistics.terms, collection_statistics.model_fingerprint,
            collection_statistics.collection
        )
    $$;
comment on function public.collection_statistics is 'Passages, total length and document frequencies, for BM25 across tiers.';
