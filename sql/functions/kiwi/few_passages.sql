-- The searchable passages of the given statements, if they are `most` at the utmost; null where they are more.
create or replace function kiwi.few_passages(collection integer, statements bigint[], most integer) returns bigint[]
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select case when count(*) <= most then coalesce(array_agg(found.passage_id), '{}') end
        from (
            select e.passage_id
            from unnest(statements) as v (id)
            cross join lateral (
                select i.passage_id from kiwi_private.all_passages as i
                where i.collection_id = collection and i.statement_id = v.id and i.searchable
                offset 0
            ) as e
            limit most + 1
        ) as found
    $$;
