-- What the audit log calls a version: nothing where it is private, for more people read the log than the version.
create or replace function kiwi.public_name_of(version kiwi.item_versions) returns text
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select case (version).visibility
            when 'public' then format('%s:%s@%s', (version).item_type, (version).item_id, (version).version) else ''
        end
    $$;
