-- Who calls, for the audit: the user that is logged in through Supabase, else the role that connected.
create or replace function kiwi.caller_name() returns text
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$ select coalesce(kiwi.user_id()::text, session_user) $$;
