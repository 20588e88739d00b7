-- The collection's tuned index, if it is there and whole; else a row of nulls. One that is being built, or was broken
-- off, is not.
create or replace function kiwi.usable_index(collection integer) returns kiwi_private.vector_indexes
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select t from kiwi_private.vector_indexes as t
        join pg_catalog.pg_class as c on c.relname = t.index_name and c.relnamespace = 'kiwi'::regnamespace
        join pg_catalog.pg_index as i on i.indexrelid = c.oid and i.indisvalid
        where t.collection_id = collection
    $$;
