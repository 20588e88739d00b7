-- The collection that is searched where no model is named: of those that are complete, the one that became so last.
create or replace function kiwi.active_collection() returns kiwi.collections
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select c from kiwi.collections as c
        where c.ready_at is not null
        order by c.ready_at desc, c.passages desc, c.collection_id
        limit 1
    $$;
