-- BM25 as kiwi.score_passages has it, of passages that are in no inverted index: from their own terms.
create or replace function kiwi.score_private_passages(
    ids bigint[], terms text[], weights float8[], average_length float8
) returns table (passage_id bigint, score float8)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    return query
        select
            e.passage_id,
            sum(
                t.weight * own.frequency * 2.2::float8
                / (own.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * e.length / average_length))
            )
        from kiwi.item_embeddings as e
        cross join lateral unnest(e.terms, e.frequencies) as own (term, frequency)
        join unnest(score_private_passages.terms, score_private_passages.weights) as t (term, weight) on t.term = own.term
        where e.passage_id = any (ids)
        group by e.passage_id;
end
$$;
