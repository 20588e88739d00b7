create or replace function public.similar_document_terms(
    workspace text, terms text[], model_fingerprint text default null
) returns jsonb
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.similar_document_terms(
            similar_document_terms.workspace, similar_document_terms.terms, similar_document_terms.model_fingerprint
        )
    $$;
comment on function public.similar_document_terms is 'For terms that are nowhere in a workspace: those of its vocabulary that a slip of the finger may have meant.';
