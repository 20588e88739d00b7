create or replace function public.similar_terms(
    terms text[], model_fingerprint text default null, collection text default 'items'
) returns jsonb
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.similar_terms(
            similar_terms.terms, similar_terms.model_fingerprint, similar_terms.collection
        )
    $$;
comment on function public.similar_terms is 'For terms that are nowhere: those of the vocabulary that a slip of the finger may have meant.';
