-- Puts the words of passages into the inverted index.
create or replace function kiwi.insert_postings(ids bigint[]) returns void
    language sql
    set search_path = pg_catalog, pg_temp
    as $$
        insert into kiwi_private.all_postings (collection_id, term, passage_id, frequency, length)
        select e.collection_id, pair.term, e.passage_id, pair.frequency, e.length
        from kiwi_private.all_passages as e, unnest(e.terms, e.frequencies) as pair (term, frequency)
        where e.passage_id = any (ids)
    $$;
