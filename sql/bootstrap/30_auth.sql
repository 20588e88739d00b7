-- auth.uid() as Supabase has it: the caller's id, from the JWT claims that PostgREST sets.
do $$
begin
    if to_regprocedure('auth.uid()') is null then
        create schema if not exists auth;
        create function auth.uid() returns uuid
            language sql stable
            set search_path = ''
            as 'select (nullif(current_setting(''request.jwt.claims'', true), '''')::jsonb ->> ''sub'')::uuid';
        grant usage on schema auth to kiwi_owner, kiwi_publisher, kiwi_indexer, kiwi_admin, anon, authenticated, service_role;
    end if;
end
$$;
