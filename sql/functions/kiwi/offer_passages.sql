-- Puts passages into the inverted index and its statistics. The caller holds the index lock.
create or replace function kiwi.offer_passages(ids bigint[]) returns void
    language sql
    set search_path = pg_catalog, pg_temp
    as $$
        with shown as (
            update kiwi.item_embeddings set searchable = true
            where passage_id in (select unnest(ids)) and not searchable
            returning collection_id, passage_id, ordinal, length, terms, frequencies
        ),
        fresh as (
            insert into kiwi.postings (collection_id, term, passage_id, frequency, length)
            select s.collection_id, pair.term, s.passage_id, pair.frequency, s.length
            from shown as s, unnest(s.terms, s.frequencies) as pair (term, frequency)
            returning collection_id, term
        ),
        raised as (
            insert into kiwi.term_statistics as t (collection_id, term, passages)
            select collection_id, term, count(*) from fresh group by collection_id, term
            on conflict (collection_id, term) do update set passages = t.passages + excluded.passages
        )
        update kiwi.collections as c
        set passages = c.passages + sums.passages, total_length = c.total_length + sums.total_length, items = c.items + sums.items
        from (
            select collection_id, count(*) as passages, sum(length) as total_length, count(*) filter (where ordinal = 0) as items
            from shown group by collection_id
        ) as sums
        where c.collection_id = sums.collection_id
    $$;
