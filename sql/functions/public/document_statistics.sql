create or replace function public.document_statistics(
    workspace text, terms text[], model_fingerprint text default null
) returns jsonb
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.document_statistics(
            document_statistics.workspace, document_statistics.terms, document_statistics.model_fingerprint
        )
    $$;
comment on function public.document_statistics is 'What BM25 needs to know of a workspace''s documents.';
