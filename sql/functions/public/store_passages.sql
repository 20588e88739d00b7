create or replace function public.store_passages(which_digest text, model_fingerprint text, passages jsonb) returns integer
    language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$
        select kiwi.store_passages(
            store_passages.which_digest, store_passages.model_fingerprint, store_passages.passages
        ) $$;
comment on function public.store_passages is 'Stores an item''s passages and vectors: for the indexer.';
