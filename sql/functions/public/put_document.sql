create or replace function public.put_document(envelope jsonb, model_fingerprint text, passages jsonb) returns jsonb
    language sql volatile security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.put_document(
            put_document.envelope, put_document.model_fingerprint, put_document.passages
        )
    $$;
comment on function public.put_document is 'Hands in a signed document with its passages and vectors, in the place of what its path had: for the indexer.';
