-- Takes one waiting version for the caller's transaction: a second indexer is told at once that somebody has it, and
-- it is free again when the transaction ends, however it ends.
-- State: claimed; busy (another has it); later (it failed, and is not to be tried again yet); done (nothing to do).
create or replace function kiwi.claim_item(which_digest text, model_fingerprint text, patient boolean) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    queued kiwi.index_queue;
    version kiwi.item_versions;
begin
    perform kiwi.require_collection(model_fingerprint);
    -- An indexer that hangs loses its claim.
    perform set_config('idle_in_transaction_session_timeout', '10min', true);
    select * into queued from kiwi.index_queue where digest = which_digest for update skip locked;
    if not found then
        return jsonb_build_object(
            'state', case when exists (select from kiwi.index_queue where digest = which_digest) then 'busy' else 'done' end
        );
    end if;
    if exists (
        select from kiwi.item_embeddings as e
        join kiwi.collections as c on c.collection_id = e.collection_id
        where e.digest = which_digest and c.fingerprint = model_fingerprint
    ) then
        return '{"state": "done"}';
    elsif patient and queued.not_before > now() then
        return '{"state": "later"}';
    end if;
    select * into version from kiwi.item_versions where digest = which_digest;
    return jsonb_build_object('state', 'claimed', 'received_at', version.received_at);
end
$$;
