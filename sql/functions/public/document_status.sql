create or replace function public.document_status(workspace text) returns jsonb
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.document_status(document_status.workspace) $$;
comment on function public.document_status is 'What a workspace holds: model, documents, passages, file types.';
