-- Whether the caller was refused so often in this minute that its next call is not read. Counts that call: the record of
-- it is record_unread's.
create or replace function kiwi.is_refused_unread() returns boolean
    language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update kiwi_private.refusals as r set unread = r.unread + 1
    where r.caller = kiwi.caller_name() and r.minute = kiwi.this_minute() and r.refused >= kiwi.refusal_limit();
    return found;
end $$;
