-- One writer of the audit at a time, to the end of its transaction: see lock_index for the order of all locks.
create or replace function kiwi.lock_audit() returns void
    language sql set search_path = pg_catalog, pg_temp as $$
        select kiwi.take_locks('{audit}');
        select set_config('idle_in_transaction_session_timeout', '15s', true) $$; -- one that falls silent blocks nobody for long
