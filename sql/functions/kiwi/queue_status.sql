-- What waits for the indexer, and since when: public items alone.
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
                    ) order by q.sequence
                ) filter (where q.attempts > 0))[1:20], '{}'
            )
        )
        from kiwi.queued_versions() as q
        join kiwi.item_versions as v on v.sequence = q.sequence
    $$;
