create or replace function public.finish_collection(model_fingerprint text, insist boolean default false) returns jsonb
    language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$ select kiwi.finish_collection(finish_collection.model_fingerprint, finish_collection.insist) $$;
comment on function public.finish_collection is 'Switches searches to a model''s collection once it is complete: for the indexer.';
