create or replace function public.delete_document(collection text, path text) returns boolean
    language sql volatile security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.delete_document(delete_document.collection, delete_document.path) $$;
comment on function public.delete_document is 'Removes a document with its passages: for indexers and admins.';
