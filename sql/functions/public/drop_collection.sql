create or replace function public.drop_collection(model_fingerprint text, max_passages integer default null) returns bigint
    language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$ select kiwi.drop_collection(drop_collection.model_fingerprint, drop_collection.max_passages) $$;
comment on function public.drop_collection is 'Removes the vectors of a model that is not the active one, all or some at a time: for the indexer.';
