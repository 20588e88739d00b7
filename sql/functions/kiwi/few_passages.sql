-- The searchable passages of the given versions, if they are `most` at the utmost; null where they are more.
create or replace function kiwi.few_passages(collection integer, versions text[], most integer) returns bigint[]
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select case when count(*) <= most then coalesce(array_agg(found.passage_id), '{}') end
        from (
            select e.passage_id
            from unnest(versions) as v (digest)
            cross join lateral (
                select i.passage_id from kiwi.item_embeddings as i
                where i.collection_id = collection and i.digest = v.digest and i.searchable
                offset 0
            ) as e
            limit most + 1
        ) as found
    $$;
