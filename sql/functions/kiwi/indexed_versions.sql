-- Versions that a model's collection holds, drawn at random, up to `max_count` (null: all).
create or replace function kiwi.indexed_versions(model_fingerprint text, max_count integer)
    returns table (digest text, received_at timestamptz, envelope jsonb)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        with drawn as (
            select distinct e.digest from kiwi.item_embeddings as e
            join kiwi.collections as c on c.collection_id = e.collection_id
            where c.fingerprint = model_fingerprint
        )
        select v.digest, v.received_at, kiwi.envelope_of(v)
        from (select d.digest from drawn as d order by random() limit max_count) as sample
        join kiwi.item_versions as v on v.digest = sample.digest
    $$;
