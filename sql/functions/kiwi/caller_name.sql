-- Who calls, for the audit and for counting refusals: the user that is logged in through Supabase, also one whose id is no
-- uuid (of another provider of logins), else the role that connected.
create or replace function kiwi.caller_name() returns text
    language sql stable set search_path = pg_catalog, pg_temp as $$
        select coalesce(
            kiwi.user_id()::text,
            case when kiwi.caller() = 'authenticated' then
                'sub:' || left(nullif(nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub', ''), 200)
            end,
            session_user
        ) $$;
