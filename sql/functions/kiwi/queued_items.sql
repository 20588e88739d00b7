-- The public items that an indexer of the active model (of any, while there is none) will take, oldest first, and what
-- went wrong with them before.
create or replace function kiwi.queued_items() returns table (
        sequence bigint, attempts integer, not_before timestamptz, problem text
    )
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select * from kiwi.waiting_items(coalesce((kiwi.active_collection()).fingerprint, ''), private_too => false)
    $$;
