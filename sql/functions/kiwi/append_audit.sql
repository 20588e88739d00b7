-- Append one record to the chain. The lock is held to the end of the transaction: numbers have no gaps, and nobody
-- sees a record before the one it follows. Of what is private the record does not even say by whom.
create or replace function kiwi.append_audit(event text, ref text, digest text, key_id text, details jsonb default '{}')
    returns kiwi.audit
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    previous kiwi.audit;
    fresh kiwi.audit;
begin
    perform kiwi.check_isolation();
    perform kiwi.lock_audit();
    perform kiwi.record_unread();
    select * into previous from kiwi.audit order by seq desc limit 1;
    fresh.seq := coalesce(previous.seq, 0) + 1;
    fresh.at := clock_timestamp();
    fresh.event := translate(event, e'\n', ' ');
    fresh.ref := translate(ref, e'\n', ' ');
    fresh.digest := translate(digest, e'\n', ' ');
    fresh.key_id := translate(key_id, e'\n', ' ');
    fresh.details := case when event = 'private' then '{}' else jsonb_build_object('by', kiwi.caller_name()) end || details;
    fresh.previous_hash := coalesce(previous.hash, repeat('0', 64));
    fresh.hash := kiwi.audit_hash(fresh);
    insert into kiwi.audit values (fresh.*);
    return fresh;
end $$;
