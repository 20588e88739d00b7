-- Okapi BM25 with k1 = 1.2 and b = 0.75 (Robertson & Zaragoza 2009, §3.2), term by term as kiwi_rag.lexical has it:
-- of every passage that holds a term, or of the given ones alone, which their places in the index give. For more terms
-- than those have, the passages' own terms are quicker: what both cost never depends on how common a term is.
create or replace function kiwi.score_passages(
    collection integer, terms text[], weights float8[], average_length float8, only_these bigint[] default null
) returns table (passage_id bigint, score float8)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if only_these is null then
        return query
            select
                p.passage_id,
                sum(
                    t.weight * p.frequency * 2.2::float8
                    / (p.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * p.length / average_length))
                )
            from unnest(terms, weights) as t (term, weight)
            join kiwi_private.all_postings as p on p.collection_id = collection and p.term = t.term
            group by p.passage_id;
    elsif cardinality(terms) <= 50 then
        return query
            select
                p.passage_id,
                sum(
                    t.weight * p.frequency * 2.2::float8
                    / (p.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * p.length / average_length))
                )
            from unnest(terms, weights) as t (term, weight)
            cross join lateral (
                select q.passage_id, q.frequency, q.length from kiwi_private.all_postings as q
                where q.collection_id = collection and q.term = t.term and q.passage_id = any (only_these)
                offset 0
            ) as p
            group by p.passage_id;
    else
        return query
            select
                e.passage_id,
                sum(
                    t.weight * own.frequency * 2.2::float8
                    / (own.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * e.length / average_length))
                )
            from kiwi_private.all_passages as e
            cross join lateral unnest(e.terms, e.frequencies) as own (term, frequency)
            join unnest(score_passages.terms, score_passages.weights) as t (term, weight) on t.term = own.term
            where e.collection_id = collection and e.passage_id = any (only_these)
            group by e.passage_id;
    end if;
end
$$;
