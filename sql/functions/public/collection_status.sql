create or replace function public.collection_status(collection text) returns jsonb
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.collection_status(collection_status.collection) $$;
comment on function public.collection_status is 'What a collection of documents holds: model, documents, passages, file types.';
