create or replace function public.index_status() returns jsonb
    language sql stable security invoker set search_path = pg_catalog, pg_temp as $$ select kiwi.index_status() $$;
comment on function public.index_status is 'Each model''s progress and what waits for the indexer: for indexers and admins.';
