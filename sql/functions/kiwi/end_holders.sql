-- Ends the connections of publishers whose transactions hold a lock and are older than three waits of take_locks: a login
-- can set every timeout aside. Spares who waits for another holder; does nothing where the owner may end no connection.
create or replace function kiwi.end_holders() returns void
    language sql set search_path = pg_catalog, pg_temp as $$
        with holders as materialized (
            select pid from pg_locks where relation = 'kiwi_private.locks'::regclass and mode = 'RowShareLock' and granted
        )
        select pg_terminate_backend(a.pid) from pg_stat_activity as a join holders as h on h.pid = a.pid
        where a.datname = current_database() and a.pid <> pg_backend_pid() and pg_has_role('pg_signal_backend', 'USAGE')
            and a.xact_start < clock_timestamp() - 3 * current_setting('lock_timeout')::interval
            and not pg_has_role(a.usesysid, 'kiwi_admin', 'MEMBER') and not pg_has_role(a.usesysid, 'kiwi_indexer', 'MEMBER')
            and not (a.wait_event in ('transactionid', 'tuple') and pg_blocking_pids(a.pid) && array(select pid from holders)) $$;
