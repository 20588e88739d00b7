-- One writer an item of an owner, to the end of the transaction; now and then two share a lock. A row, not an advisory
-- lock: that could be taken by anybody, and would tell what is being published. Whose item it is counts, too, so that
-- no wait tells of somebody's private item of that name.
create or replace function kiwi.lock_item(owner_key text, predicate jsonb) returns void
    language sql
    set search_path = pg_catalog, pg_temp
    as $$
        select from kiwi_private.locks
        where name = 'item' || (
            hashtextextended(owner_key || ':' || (predicate ->> 'item_type') || ':' || kiwi.fold_item_id(predicate ->> 'item_id'), 0)
            & 255
        )
        for update
    $$;
