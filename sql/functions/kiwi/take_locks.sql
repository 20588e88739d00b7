-- Locks a signer's row, if one is named, and these of the locks, in order, to the end of the transaction. Every five
-- seconds of waiting it ends those that hold locks for long; after a minute it gives up, whatever the caller's timeout.
create or replace function kiwi.take_locks(names text[], signer_key text default null) returns void
    language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
begin
    for attempt in 1..12 loop
        begin
            perform from kiwi.signers where key_id = signer_key for update;
            perform from kiwi_private.locks where name = any (names) order by name for update;
            return;
        exception when lock_not_available then
            perform kiwi.end_holders();
        end;
    end loop;
    raise lock_not_available using message = 'another transaction holds a lock for over a minute';
end $$;
