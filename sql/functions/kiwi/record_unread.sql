-- Gives the calls that were refused unread, in minutes that are over, one audit record for each caller and minute. Part of
-- every append to the audit, under its lock: so it waits for no row, and leaves one that is in use to the next append.
create or replace function kiwi.record_unread() returns void
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    over kiwi_private.refusals[];
    counted kiwi_private.refusals;
begin
    with ended as (
        delete from kiwi_private.refusals as d using (
            select r.caller, r.minute from kiwi_private.refusals as r
            where r.minute < kiwi.this_minute() for update skip locked
        ) as e where d.caller = e.caller and d.minute = e.minute returning d.*
    )
    select array_agg(e order by e.minute, e.caller) into over from ended as e where e.unread > 0;
    foreach counted in array coalesce(over, '{}') loop
        perform kiwi.append_audit(
            'refused', '', '', '', jsonb_build_object(
                'code', 'KW019', 'message', format('%s calls were refused unread', counted.unread), 'count', counted.unread,
                'minute', to_char(counted.minute at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"'), 'by', counted.caller
            )
        );
    end loop;
end $$;
