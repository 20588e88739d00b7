-- The collection of public items that is searched where no model is named: of those that are complete, the one that
-- became so last.
create or replace function kiwi.active_collection() returns kiwi_private.collections
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select c from kiwi_private.collections as c
        where c.owner_key = '' and c.ready_at is not null
        order by c.ready_at desc, c.passages desc, c.collection_id
        limit 1
    $$;
