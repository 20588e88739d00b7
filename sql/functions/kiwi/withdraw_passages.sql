-- Takes passages out of the inverted index and its statistics. The caller holds the index lock.
create or replace function kiwi.withdraw_passages(ids bigint[]) returns void
    language sql
    set search_path = pg_catalog, pg_temp
    as $$
        with gone as (
            delete from kiwi.postings where passage_id in (select unnest(ids)) returning collection_id, term
        ),
        lost as (
            select collection_id, term, count(*) as passages from gone group by collection_id, term
        ),
        lowered as (
            update kiwi.term_statistics as t set passages = t.passages - lost.passages
            from lost
            where t.collection_id = lost.collection_id and t.term = lost.term and t.passages > lost.passages
        ),
        removed as (
            delete from kiwi.term_statistics as t using lost
            where t.collection_id = lost.collection_id and t.term = lost.term and t.passages = lost.passages
        ),
        hidden as (
            update kiwi.item_embeddings set searchable = false
            where passage_id in (select unnest(ids)) and searchable
            returning collection_id, ordinal, length
        )
        update kiwi.collections as c
        set passages = c.passages - sums.passages, total_length = c.total_length - sums.total_length, items = c.items - sums.items
        from (
            select collection_id, count(*) as passages, sum(length) as total_length, count(*) filter (where ordinal = 0) as items
            from hidden group by collection_id
        ) as sums
        where c.collection_id = sums.collection_id
    $$;
