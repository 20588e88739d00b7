-- Takes one waiting item for the caller's transaction, with its files: a second indexer is told at once that somebody has
-- it, and it is free again when the transaction ends, however it ends.
-- State: claimed; busy (another has it); later (it failed, and is not to be tried again yet); done (nothing to do).
create or replace function kiwi.claim_item(which_digest text, model_fingerprint text, patient boolean) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    wanted bigint[] := array(
        select i from kiwi.items_of(which_digest) as i where not kiwi.has_passages(i, model_fingerprint)
    );
    queued kiwi_private.index_queue;
    statement kiwi_private.all_statements;
begin
    perform kiwi.require_collection(model_fingerprint);
    -- An indexer that hangs loses its claim.
    perform set_config('idle_in_transaction_session_timeout', '10min', true);
    select * into queued from kiwi_private.index_queue as q
    where q.statement_id = any (wanted) order by q.statement_id limit 1
    for update skip locked;
    if not found then
        return jsonb_build_object('state', case when cardinality(wanted) > 0 then 'busy' else 'done' end);
    elsif kiwi.has_passages(queued.statement_id, model_fingerprint) then -- until a moment ago another had it
        return '{"state": "done"}';
    elsif patient and queued.not_before > now() then
        return '{"state": "later"}';
    end if;
    select * into statement from kiwi_private.all_statements as v where v.sequence = queued.statement_id;
    return jsonb_build_object(
        'state', 'claimed', 'received_at', statement.received_at, 'envelope', kiwi.envelope_of(statement),
        'files', kiwi.files_of(statement, null)
    );
end
$$;
