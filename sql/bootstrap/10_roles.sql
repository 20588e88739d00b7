-- Roles, made only where missing: Supabase brings anon, authenticated and service_role itself.
do $$
declare
    wanted text;
begin
    foreach wanted in array array[
        'anon', 'authenticated', 'service_role', 'kiwi_owner', 'kiwi_publisher', 'kiwi_indexer', 'kiwi_admin'
    ] loop
        begin
            if not exists (select from pg_catalog.pg_roles where rolname = wanted) then
                execute format('create role %I nologin', wanted);
            end if;
        exception when duplicate_object or unique_violation then
            null; -- another database of this cluster was being migrated and made it first
        end;
        -- Whoever migrates may act as Kiwi's own roles: it owns the database anyway.
        if wanted like 'kiwi_%' and not pg_catalog.pg_has_role(current_user, wanted, 'SET') then
            execute format('grant %I to %I with inherit true, set true', wanted, current_user);
        end if;
    end loop;
    begin
        grant pg_monitor, pg_signal_backend to kiwi_owner; -- for end_holders
    exception when insufficient_privilege or unique_violation then
        null; -- whoever migrates may not, or the other database's migration did it
    end;
end $$;
