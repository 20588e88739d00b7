create or replace function public.pending_items(
    model_fingerprint text, max_count integer default 100, after bigint default 0
) returns table (sequence bigint, envelope jsonb)
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select * from kiwi.pending_items(
            pending_items.model_fingerprint, pending_items.max_count, pending_items.after
        )
    $$;
comment on function public.pending_items is 'Published items that wait for the indexer.';
