-- The given passages, in their order, as far as they are of the given statements (null: of any), up to `most`. Each is
-- looked up by itself, so that a caller who has enough after a few pays for a few.
create or replace function kiwi.allowed_passages(collection integer, ids bigint[], statements bigint[], most integer)
    returns setof bigint
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select c.id from unnest(ids) with ordinality as c (id, place)
        where statements is null or (
            select e.statement_id from kiwi_private.all_passages as e
            where e.collection_id = collection and e.passage_id = c.id
        ) in (select unnest(statements))
        order by c.place
        limit most
    $$;
