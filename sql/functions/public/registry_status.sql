create or replace function public.registry_status() returns jsonb
    language sql stable security invoker set search_path = pg_catalog, pg_temp as $$ select kiwi.registry_status() $$;
comment on function public.registry_status is 'Counts, versions and health.';
