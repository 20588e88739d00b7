-- Items that a model's collections hold, up to `max_count` (null: all), in the order of their digests: drawn at random,
-- or the first that come after the digest `after` (empty: from the beginning), for who goes through all of them.
create or replace function kiwi.indexed_items(model_fingerprint text, max_count integer, after text)
    returns table (digest text, received_at timestamptz, envelope jsonb, files jsonb)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        with held as (
            select distinct on (v.digest) v.digest, v.sequence
            from kiwi_private.collections as c
            join kiwi_private.all_passages as e on e.collection_id = c.collection_id and e.ordinal = 0
            join kiwi_private.all_statements as v on v.sequence = e.statement_id
            where c.kind = 'items' and c.fingerprint = model_fingerprint and (after is null or v.digest > after)
            order by v.digest, v.sequence
        )
        select v.digest, v.received_at, kiwi.envelope_of(v), kiwi.files_of(v, null)
        from (
            select h.sequence from held as h
            order by case when after is null then random() end, h.digest
            limit max_count
        ) as chosen
        join kiwi_private.all_statements as v on v.sequence = chosen.sequence
        order by v.digest
    $$;
