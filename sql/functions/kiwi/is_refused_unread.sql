-- Whether the caller was refused so often in this minute that its next call is not read. Counts that call; what was
-- counted in a minute that is over gets its one audit record.
create or replace function kiwi.is_refused_unread() returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    most constant integer := coalesce((select s.value::integer from kiwi.settings as s where s.name = 'refusals_per_minute'), 60);
    counted kiwi_private.refusals;
begin
    select * into counted from kiwi_private.refusals as r where r.caller = kiwi.caller_name();
    if counted.minute = date_trunc('minute', clock_timestamp()) and counted.refused >= most then
        update kiwi_private.refusals as r set unread = r.unread + 1 where r.caller = counted.caller;
        return true;
    end if;
    delete from kiwi_private.refusals as r
    where r.caller = counted.caller and r.unread > 0 and r.minute < date_trunc('minute', clock_timestamp())
    returning r.* into counted;
    if found then
        perform kiwi.append_audit(
            'refused', '', '', '',
            jsonb_build_object('code', 'KW019', 'message', format('%s calls were refused unread', counted.unread), 'count', counted.unread)
        );
    end if;
    return false;
end
$$;
