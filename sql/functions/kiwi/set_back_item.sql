-- Notes that a version could not be indexed, and when to try again: after a minute, then twice as long each time, at
-- most a day. The caller holds its claim.
create or replace function kiwi.set_back_item(which_digest text, what_was_wrong text) returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    as $$
        update kiwi.index_queue
        set attempts = attempts + 1, problem = left(what_was_wrong, 1000),
            not_before = now() + least(interval '1 minute' * 2 ^ least(attempts, 11), interval '1 day')
        where digest = which_digest
    $$;
