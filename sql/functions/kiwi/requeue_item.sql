-- Notes that an item could not be indexed, and when to try again: after a minute, then twice as long each time, at most a
-- day. The caller holds its claim.
create or replace function kiwi.requeue_item(which_digest text, problem text) returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    as $$
        update kiwi_private.index_queue as q
        set attempts = q.attempts + 1, problem = left(requeue_item.problem, 1000),
            not_before = now() + least(interval '1 minute' * 2 ^ least(q.attempts, 11), interval '1 day')
        where q.statement_id in (select kiwi.items_of(which_digest))
    $$;
