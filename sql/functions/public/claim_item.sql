create or replace function public.claim_item(which_digest text, model_fingerprint text, patient boolean default false) returns jsonb
    language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$ select kiwi.claim_item(claim_item.which_digest, claim_item.model_fingerprint, claim_item.patient) $$;
comment on function public.claim_item is 'Takes a waiting item for this transaction: for the indexer.';
