-- Every passage of the given statements with its scores in both legs, and beside it what the passages of its item say
-- together: the best and the first cosine, that of the mean vector, the best BM25, and BM25 of the item as one document
-- (frequencies and lengths added up). The terms are read from the passages and not from the inverted index, in which each
-- term of each passage would be a lookup of its own: that took five times as long, and private items do not stand in it.
create or replace function kiwi.score_items(
    collection integer, statements bigint[], query_embedding extensions.vector, terms text[], weights float8[],
    average_length float8, average_item_length float8
) returns table (
    passage_id bigint, cosine float8, bm25 float8, best_cosine float8, first_cosine float8, centroid_cosine float8,
    best_bm25 float8, item_bm25 float8
)
    language plpgsql stable set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
begin
    return query
        with mates as materialized (
            select e.passage_id, e.statement_id, e.ordinal, e.length, e.embedding, e.terms, e.frequencies,
                coalesce(1 - (e.embedding operator(extensions.<=>) query_embedding), 0) as cosine
            from kiwi_private.all_passages as e
            where e.collection_id = collection and e.statement_id = any (statements)
        ),
        items as (
            select m.statement_id, sum(m.length) as length, max(m.cosine) as best,
                (array_agg(m.cosine order by m.ordinal))[1] as first,
                sum(m.cosine) / nullif(extensions.vector_norm(extensions.sum(m.embedding)), 0) as centroid
            from mates as m
            group by m.statement_id
        ),
        held as (
            select m.passage_id, t.term, t.weight, own.frequency
            from mates as m
            cross join lateral unnest(m.terms, m.frequencies) as own (term, frequency)
            join unnest(score_items.terms, score_items.weights) as t (term, weight) on t.term = own.term
        ),
        passages as (
            select h.passage_id,
                sum(
                    h.weight * h.frequency * 2.2::float8
                    / (h.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * m.length / average_length))
                ) as score
            from held as h
            join mates as m on m.passage_id = h.passage_id
            group by h.passage_id
        ),
        frequencies as (
            select m.statement_id, h.term, min(h.weight) as weight, sum(h.frequency)::float8 as frequency
            from held as h
            join mates as m on m.passage_id = h.passage_id
            group by m.statement_id, h.term
        ),
        documents as (
            select i.statement_id,
                sum(
                    f.weight * f.frequency * 2.2::float8
                    / (f.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * i.length / average_item_length))
                ) as score
            from frequencies as f
            join items as i on i.statement_id = f.statement_id
            group by i.statement_id
        )
        select m.passage_id, m.cosine, coalesce(p.score, 0), i.best, i.first, coalesce(i.centroid, 0),
            coalesce(max(p.score) over (partition by m.statement_id), 0), coalesce(d.score, 0)
        from mates as m
        join items as i on i.statement_id = m.statement_id
        left join passages as p on p.passage_id = m.passage_id
        left join documents as d on d.statement_id = m.statement_id;
end $$;
