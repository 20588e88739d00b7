-- Whether the caller owns a version: logged in through Supabase as its owner, or, where it has none, connected as the
-- role that is named like its signer's principal. A superuser reads every table anyway.
create or replace function kiwi.is_mine(owner_id uuid, owner_name text) returns boolean
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select case when owner_id is null then owner_name = kiwi.caller() else owner_id = kiwi.user_id() end is true
            or exists (select from pg_catalog.pg_roles where rolname = kiwi.caller() and rolsuper)
    $$;
