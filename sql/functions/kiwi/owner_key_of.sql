-- Within what a version is counted: the public ones together, each owner's private ones apart. As the generated column.
create or replace function kiwi.owner_key_of(visibility text, owner_id uuid, owner_name text) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
    as $$
        select case
            when visibility = 'public' then ''
            when owner_id is not null then 'uid:' || owner_id::text
            else 'principal:' || owner_name
        end
    $$;
