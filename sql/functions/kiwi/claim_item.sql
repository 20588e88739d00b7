-- Takes one waiting item for the caller's transaction, with its files: a second indexer is told at once that somebody has
-- it, and it is free again when the transaction ends, however it ends.
-- State: claimed; busy (another has it); later (it failed, and is not to be tried again yet); done (nothing to do).
create or replace function kiwi.claim_item(which_digest text, model_fingerprint text, patient boolean) returns jsonb
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    queued kiwi_private.index_queue;
    statement kiwi_private.all_statements;
begin
    perform kiwi.require_collection(model_fingerprint);
    -- An indexer that hangs loses its claim.
    perform set_config('idle_in_transaction_session_timeout', '10min', true);
    for attempt in 1..2 loop -- the second time under the locks, when nobody else stores them
        select * into queued from kiwi_private.index_queue as q
        where q.statement_id in (select kiwi.items_of(which_digest)) and not kiwi.has_passages(q.statement_id, model_fingerprint)
        order by q.statement_id limit 1;
        exit when not found or attempt = 2;
        begin -- every row of the digest, or none: store_passages and requeue_item change all of them
            perform from kiwi_private.index_queue as q
            where q.statement_id in (select kiwi.items_of(which_digest)) order by q.statement_id
            for update nowait;
        exception when lock_not_available then
            return '{"state": "busy"}';
        end;
    end loop;
    if queued.statement_id is null then
        return '{"state": "done"}';
    elsif patient and queued.not_before > now() then
        return '{"state": "later"}';
    end if;
    select * into statement from kiwi_private.all_statements as v where v.sequence = queued.statement_id;
    return jsonb_build_object(
        'state', 'claimed', 'received_at', statement.received_at, 'envelope', kiwi.envelope_of(statement),
        'files', kiwi.files_of(statement, null)
    );
end $$;
