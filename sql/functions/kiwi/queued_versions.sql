-- The public versions that an indexer of the active model (of any, while there is none) will take, oldest first, and
-- what went wrong with them before.
create or replace function kiwi.queued_versions() returns table (
        sequence bigint, digest text, attempts integer, not_before timestamptz, problem text
    )
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select w.sequence, w.digest, coalesce(q.attempts, 0), coalesce(q.not_before, '-infinity'), coalesce(q.problem, '')
        from kiwi.waiting_versions(coalesce((select c.fingerprint from kiwi.active_collection() as c), '')) as w
        join kiwi.item_versions as v on v.sequence = w.sequence and v.visibility = 'public'
        left join kiwi.index_queue as q on q.digest = w.digest
        order by w.sequence
    $$;
