create or replace function public.get_document(workspace text, path text) returns table (
        path text, digest text, content_sha256 text, metadata jsonb, signed_at timestamptz, received_at timestamptz,
        key_id text, principal text, passages integer, rules text, envelope jsonb
    )
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select * from kiwi.stored_documents(get_document.workspace, get_document.path, '{}', true) $$;
comment on function public.get_document is 'A document of a workspace, with its signed envelope.';
