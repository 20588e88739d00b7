-- Okapi BM25 with k1 = 1.2 and b = 0.75 (Robertson & Zaragoza 2009, §3.2), term by term as kiwi_rag.lexical has it:
-- of every passage that holds a term, or of the given ones alone.
create or replace function kiwi.score_passages(
    collection integer, terms text[], weights float8[], average_length float8, only_these bigint[] default null
) returns table (passage_id bigint, score float8)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    return query
        select
            p.passage_id,
            sum(
                t.weight * p.frequency * 2.2::float8
                / (p.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * p.length / average_length))
            )
        from unnest(terms, weights) as t (term, weight)
        join kiwi.postings as p on p.collection_id = collection and p.term = t.term
        where only_these is null or p.passage_id = any (only_these)
        group by p.passage_id;
end
$$;
