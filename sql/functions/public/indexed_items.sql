create or replace function public.indexed_items(
    model_fingerprint text, max_count integer default null, after text default null
) returns table (digest text, received_at timestamptz, envelope jsonb, files jsonb)
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select * from kiwi.indexed_items(
            indexed_items.model_fingerprint, indexed_items.max_count, indexed_items.after
        )
    $$;
comment on function public.indexed_items is 'Items that have vectors, drawn at random, or those after a digest: for those who check them.';
