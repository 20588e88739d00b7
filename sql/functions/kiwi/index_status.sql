-- What the indexer has done and what waits for it, of public items, as one object: for those who may read the queue.
create or replace function kiwi.index_status() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select jsonb_build_object(
            'models', coalesce((select jsonb_agg(p) from kiwi.model_progress() as p), '[]'),
            'queue', kiwi.queue_status()
        )
    $$;
