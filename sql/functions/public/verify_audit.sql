create or replace function public.verify_audit() returns bigint
    language sql stable security invoker set search_path = pg_catalog, pg_temp as $$ select kiwi.verify_audit() $$;
comment on function public.verify_audit is 'Number of the first audit record that breaks the chain; null when it holds.';
