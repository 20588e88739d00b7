-- Counts of what is public, and health, as one object: cheap, and for everybody. index_status tells of the queue.
create or replace function kiwi.registry_status() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select jsonb_build_object(
            'audience', (select value from kiwi.settings where name = 'audience'),
            'revision', (select max(version_num) from kiwi.alembic_version),
            'sql_digest', (select value from kiwi.settings where name = 'sql_digest'),
            'versions', (select count(*) from kiwi.statements),
            'items', (select count(distinct (item_type, folded_id)) from kiwi.statements where yanked_at is null),
            'signers', (select count(*) from kiwi.signers where status = 'active'),
            'collections', coalesce((select jsonb_object_agg(p.fingerprint, p.passages) from kiwi.vector_plans() as p), '{}'),
            'vectors', coalesce(
                (
                    select jsonb_agg(
                        jsonb_build_object(
                            'model', p.fingerprint, 'plan', p.plan, 'lists', p.lists, 'effort', p.effort,
                            'recall', p.recall, 'tuned_passages', p.tuned_passages, 'tuned_at', p.tuned_at, 'due', p.due
                        )
                    )
                    from kiwi.vector_plans() as p
                ),
                '[]'
            ),
            'active_model', (kiwi.active_collection()).fingerprint,
            'audit_head', kiwi.audit_head(),
            'server', current_setting('server_version'),
            'pgvector', (select extversion from pg_catalog.pg_extension where extname = 'vector')
        )
    $$;
