-- The id of who is logged in through Supabase, from the claims that PostgREST sets; null for everybody else. Not
-- auth.uid(): there the schema auth is the platform's, and Kiwi's own roles cannot be given the use of it.
-- On a connection of one's own anybody can set claims: they count for the role alone that PostgREST gives a token's bearer.
create or replace function kiwi.user_id() returns uuid
    language sql stable set search_path = pg_catalog, pg_temp as $$
        select case when pg_input_is_valid(claims.sub, 'uuid') then claims.sub::uuid end
        from (select nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub' as sub) as claims
        where kiwi.caller() = 'authenticated' $$;
