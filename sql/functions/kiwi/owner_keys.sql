-- Under what keys the caller's own private versions are counted (see owner_key_of): as is_mine tells it row by row. A
-- superuser reads every table anyway.
create or replace function kiwi.owner_keys() returns text[]
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if exists (select from pg_catalog.pg_roles where rolname = kiwi.caller() and rolsuper) then
        return array(select distinct v.owner_key from kiwi.item_versions as v where v.visibility = 'private');
    end if;
    return array_remove(
        array[kiwi.owner_key_of('private', null, kiwi.caller()), kiwi.owner_key_of('private', kiwi.user_id(), null)], null
    );
end
$$;
