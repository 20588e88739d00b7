-- What waits for the indexer of the active model (of any, while there is none), and since when: public items alone.
create or replace function kiwi.queue_status() returns jsonb
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select jsonb_build_object(
            'waiting', count(*),
            'refused', count(*) filter (where q.attempts > 0),
            'oldest', min(v.received_at),
            'problems', coalesce(
                (array_agg(
                    jsonb_build_object(
                        'ref', format('%s:%s@%s', v.item_type, v.item_id, v.version), 'attempts', q.attempts,
                        'next', q.not_before, 'problem', q.problem
                    ) order by p.sequence
                ) filter (where q.attempts > 0))[1:20], '{}'
            )
        )
        from kiwi.waiting_versions(coalesce((kiwi.active_collection()).fingerprint, '')) as p
        join kiwi.item_versions as v on v.sequence = p.sequence
        left join kiwi.index_queue as q on q.digest = v.digest
        where v.visibility = 'public'
    $$;
