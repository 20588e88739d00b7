-- Gives the calls that were refused unread, in a minute that is over, their one audit record: at the end of the caller's
-- next call that is accepted, so that the audit's lock comes in the order of lock_index, and before the caller's row, as in
-- record_rejection.
create or replace function kiwi.record_unread() returns void
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    counted kiwi_private.refusals;
begin
    if not exists (select from kiwi_private.refusals as r where r.caller = kiwi.caller_name() and r.unread > 0) then
        return;
    end if;
    perform kiwi.lock_audit();
    delete from kiwi_private.refusals as r
    where r.caller = kiwi.caller_name() and r.unread > 0 and r.minute < date_trunc('minute', clock_timestamp())
    returning r.* into counted;
    if found then
        perform kiwi.append_audit(
            'refused', '', '', '',
            jsonb_build_object('code', 'KW019', 'message', format('%s calls were refused unread', counted.unread), 'count', counted.unread)
        );
    end if;
end $$;
