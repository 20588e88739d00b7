-- What the indexer has done and what waits for it, of public items, as one object: for those who may know of the queue.
create or replace function kiwi.index_status() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select jsonb_build_object(
            'models', coalesce((select jsonb_agg(p) from kiwi.model_progress() as p), '[]'),
            'queue', jsonb_build_object(
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
        )
        from kiwi.queued_items() as q
        join kiwi.statements as v on v.sequence = q.sequence
    $$;
