-- Versions that a model's collection holds, up to `max_count` (null: all), in the order of their digests: drawn at random,
-- or the first that come after the digest `after` (empty: from the beginning), for who goes through all of them.
create or replace function kiwi.indexed_versions(model_fingerprint text, max_count integer, after text)
    returns table (digest text, received_at timestamptz, envelope jsonb)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        with held as (
            select distinct e.digest from kiwi.item_embeddings as e
            join kiwi.collections as c on c.collection_id = e.collection_id
            where c.fingerprint = model_fingerprint and (after is null or e.digest > after)
        )
        select v.digest, v.received_at, kiwi.envelope_of(v)
        from (
            select h.digest from held as h
            order by case when after is null then random() end, h.digest
            limit max_count
        ) as chosen
        join kiwi.item_versions as v on v.digest = chosen.digest
        order by v.digest
    $$;
