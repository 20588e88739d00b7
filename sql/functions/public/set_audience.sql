create or replace function public.set_audience(name_of_registry text) returns void
    language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$ select kiwi.set_audience(set_audience.name_of_registry) $$;
comment on function public.set_audience is 'Names the registry; only statements signed for this name are taken.';
