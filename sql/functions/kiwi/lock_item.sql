-- One writer an item of each of these owners, to the end of the transaction. Now and then two share a lock, so that all
-- are taken at once, in order. A row, not an advisory lock: that could be taken by anybody, and would tell what is being
-- published. Whose item it is counts, too, so that no wait tells of somebody's private item of that name.
create or replace function kiwi.lock_item(owner_keys text[], predicate jsonb) returns void
    language sql set search_path = pg_catalog, pg_temp as $$
        select kiwi.take_locks(array(
            select 'item' || (hashtextextended(k || ':' || (predicate ->> 'item_type') || ':' || kiwi.fold_item_id(predicate ->> 'item_id'), 0) & 255)
            from unnest(owner_keys) as k
        )) $$;
