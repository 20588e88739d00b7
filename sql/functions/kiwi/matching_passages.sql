-- The words leg: the `depth` passages that score highest under the caller's weights.
create or replace function kiwi.matching_passages(
    collection integer, terms text[], weights float8[], average_length float8, depth integer, filter jsonb
) returns table (passage_id bigint)
    language plpgsql stable
    set search_path = ''
    as $$
begin
    return query
        with scored as (
            select p.passage_id as id, sum(kiwi.bm25(t.weight, p.frequency, p.length, average_length)) as score
            from unnest(terms, weights) as t (term, weight)
            join kiwi.postings as p on p.collection_id = collection and p.term = t.term
            group by p.passage_id
        )
        select s.id from scored as s
        where filter = '{}' or exists (
            select from kiwi.item_embeddings as e
            where e.passage_id = s.id and e.digest in (select f.digest from kiwi.filtered_versions(filter) as f)
        )
        order by s.score desc, s.id
        limit depth;
end
$$;
