-- Drops a collection's indexes over vectors, which are empty by then. That needs the table to itself for a moment; where
-- it is not to be had within half a second, they are left to the next tuning, and nobody waits behind this one.
create or replace function kiwi.drop_vector_indexes(collection integer) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '500ms'
    as $$
declare
    nearest regclass;
begin
    for nearest in
        select c.oid from pg_catalog.pg_class as c
        where c.relnamespace = 'kiwi'::regnamespace and c.relkind = 'i'
            and c.relname ~ format('^passages_nearest_%s_[0-9]+$', collection)
    loop
        execute format('drop index %s', nearest);
    end loop;
exception when lock_not_available then
    null;
end
$$;
