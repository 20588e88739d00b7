-- Locks what goes when a private statement is replaced by the same one in public: its row in the queue and its own, which
-- an indexer that stores its passages holds until it has the index. In the order of lock_index, before the audit's lock.
create or replace function kiwi.lock_draft(draft kiwi_private.all_statements) returns void
    language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from kiwi.signers as s where s.key_id = draft.signer for share;
    perform from kiwi_private.index_queue as q where q.statement_id = draft.sequence for update;
    perform from kiwi_private.statements as v where v.sequence = draft.sequence for update;
end $$;
