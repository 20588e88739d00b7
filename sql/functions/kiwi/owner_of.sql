-- The key under which a collection's statements stand.
create or replace function kiwi.owner_of(collection integer) returns text
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$ select c.owner_key from kiwi_private.collections as c where c.collection_id = collection $$;
