-- Every passage of the given documents with its scores in both legs, and beside it what the passages of its document say
-- together: as score_items, where all that is stored is searchable.
create or replace function kiwi.score_documents(
    workspace_number integer, documents bigint[], query_embedding extensions.vector, terms text[], weights float8[],
    average_length float8, average_item_length float8
) returns table (
    passage_id bigint, cosine float8, bm25 float8, best_cosine float8, first_cosine float8, centroid_cosine float8,
    best_bm25 float8, item_bm25 float8
)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
begin
    return query
        with mates as materialized (
            select p.passage_id, p.document_id, p.ordinal, p.length, p.embedding,
                coalesce(1 - (p.embedding operator(extensions.<=>) query_embedding), 0) as cosine
            from kiwi.document_passages as p
            where p.document_id = any (score_documents.documents)
        ),
        items as (
            select m.document_id, sum(m.length) as length, max(m.cosine) as best,
                (array_agg(m.cosine order by m.ordinal))[1] as first,
                sum(m.cosine) / nullif(extensions.vector_norm(extensions.sum(m.embedding)), 0) as centroid
            from mates as m
            group by m.document_id
        ),
        held as materialized (
            select p.passage_id, p.document_id, t.term, t.weight, p.frequency, p.length
            from unnest(score_documents.terms, score_documents.weights) as t (term, weight)
            join kiwi.document_postings as p on p.workspace_id = workspace_number and p.term = t.term
            where p.document_id in (select unnest(score_documents.documents))
        ),
        passages as (
            select h.passage_id,
                sum(
                    h.weight * h.frequency * 2.2::float8
                    / (h.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * h.length / average_length))
                ) as score
            from held as h
            group by h.passage_id
        ),
        frequencies as (
            select h.document_id, h.term, min(h.weight) as weight, sum(h.frequency)::float8 as frequency
            from held as h
            group by h.document_id, h.term
        ),
        wholes as (
            select i.document_id,
                sum(
                    f.weight * f.frequency * 2.2::float8
                    / (f.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * i.length / average_item_length))
                ) as score
            from frequencies as f
            join items as i on i.document_id = f.document_id
            group by i.document_id
        )
        select m.passage_id, m.cosine, coalesce(p.score, 0), i.best, i.first, coalesce(i.centroid, 0),
            coalesce(max(p.score) over (partition by m.document_id), 0), coalesce(w.score, 0)
        from mates as m
        join items as i on i.document_id = m.document_id
        left join passages as p on p.passage_id = m.passage_id
        left join wholes as w on w.document_id = m.document_id;
end
$$;
