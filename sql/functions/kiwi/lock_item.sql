-- One writer an item, to the end of the transaction; now and then two items share a lock. A row, not an advisory lock:
-- that could be taken by anybody, and would tell what is being published.
create or replace function kiwi.lock_item(item_type text, item_id text) returns void
    language sql
    set search_path = pg_catalog, pg_temp
    as $$
        select from kiwi.locks
        where name = 'item' || (hashtextextended(item_type || ':' || kiwi.fold_item_id(item_id), 0) & 255)
        for update
    $$;
