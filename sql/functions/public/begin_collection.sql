create or replace function public.begin_collection(model_fingerprint text) returns text
    language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$ select kiwi.begin_collection(begin_collection.model_fingerprint) $$;
comment on function public.begin_collection is 'Starts a model''s collection beside the active one: for the indexer.';
