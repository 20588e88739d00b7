-- Adds passages to the statistics of their collections (`sign` 1), or takes them out (-1). Statistics are the sum of what
-- is searchable, always: whoever changes them holds the collections' rows, in one order.
create or replace function kiwi.change_statistics(ids bigint[], sign integer) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if cardinality(ids) = 0 then
        return;
    end if;
    perform from kiwi_private.collections as c
    where c.collection_id in (select e.collection_id from kiwi_private.all_passages as e where e.passage_id = any (ids))
    order by c.collection_id
    for no key update;
    if sign > 0 then
        insert into kiwi_private.all_term_statistics as t (collection_id, term, passages)
        select e.collection_id, u.term collate "C", count(*)
        from kiwi_private.all_passages as e, unnest(e.terms) as u (term)
        where e.passage_id = any (ids)
        group by 1, 2
        on conflict (collection_id, term) do update set passages = t.passages + excluded.passages;
    else
        with lost as materialized (
            select e.collection_id, u.term collate "C" as term, count(*) as passages
            from kiwi_private.all_passages as e, unnest(e.terms) as u (term)
            where e.passage_id = any (ids)
            group by 1, 2
        ),
        lowered as (
            update kiwi_private.all_term_statistics as t set passages = t.passages - lost.passages
            from lost
            where t.collection_id = lost.collection_id and t.term = lost.term and t.passages > lost.passages
        )
        delete from kiwi_private.all_term_statistics as t using lost
        where t.collection_id = lost.collection_id and t.term = lost.term and t.passages = lost.passages;
    end if;
    update kiwi_private.collections as c
    set passages = c.passages + sign * sums.passages, total_length = c.total_length + sign * sums.total_length,
        items = c.items + sign * sums.items
    from (
        select e.collection_id, count(*) as passages, sum(e.length) as total_length, count(*) filter (where e.ordinal = 0) as items
        from kiwi_private.all_passages as e where e.passage_id = any (ids)
        group by e.collection_id
    ) as sums
    where c.collection_id = sums.collection_id;
end
$$;
