-- The words leg over documents: the `depth` passages that score highest, all postings added up. BM25 as score_passages.
create or replace function kiwi.matching_document_passages(
    workspace_number integer, terms text[], weights float8[], average_length float8, depth integer, among bigint[]
) returns table (passage_id bigint)
    language plpgsql stable rows 100
    set search_path = pg_catalog, pg_temp
    set work_mem = '64MB'
    set jit = off
    as $$
begin
    return query
        select p.passage_id
        from unnest(terms, weights) as t (term, weight)
        join kiwi.document_postings as p on p.workspace_id = workspace_number and p.term = t.term
        where among is null or p.document_id in (select unnest(among))
        group by p.passage_id
        order by
            sum(
                t.weight * p.frequency * 2.2::float8
                / (p.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * p.length / average_length))
            ) desc,
            p.passage_id
        limit depth;
end
$$;
