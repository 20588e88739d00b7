create or replace function public.clear_documents(collection text, max_documents integer default 1000) returns integer
    language sql volatile security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.clear_documents(clear_documents.collection, clear_documents.max_documents) $$;
comment on function public.clear_documents is 'Removes up to so many documents of a collection: for indexers and admins.';
