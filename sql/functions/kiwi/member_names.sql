-- The names of an object's members, in order; null for what is no object.
create or replace function kiwi.member_names(value jsonb) returns text[]
    language sql immutable
    set search_path = pg_catalog, pg_temp
    as $$
        select case
            when jsonb_typeof(value) = 'object'
                then array(select key from jsonb_object_keys(value) as key order by key collate "C")
        end
    $$;
