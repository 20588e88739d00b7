-- One writer of the index of public items at a time. Short: vectors and terms are made before, and a holder that falls
-- silent loses its transaction, so that no revocation waits for it.
--
-- Every function takes its locks in this one order, whatever it leaves out, so that no two wait for each other:
-- the caller's row of refusals, item or document (lock_item, lock_document), a collection's row to read, signer row,
-- queue row, statement, audit (append_audit), index, and the rows of collections whose statistics change. A transaction
-- that changes several items through several calls must reckon with a deadlock, which Postgres ends by refusing one of
-- the two.
create or replace function kiwi.lock_index() returns void
    language sql set search_path = pg_catalog, pg_temp as $$
        select kiwi.take_locks('{index}');
        select set_config('idle_in_transaction_session_timeout', '15s', true) $$;
