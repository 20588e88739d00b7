-- Whether the caller is a superuser.
create or replace function kiwi.is_superuser() returns boolean
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$ select exists (select from pg_catalog.pg_roles where rolname = kiwi.caller() and rolsuper) $$;
