-- The words leg: the `depth` passages that score highest under the caller's weights.
create or replace function kiwi.matching_passages(
    collection integer, terms text[], weights float8[], average_length float8, depth integer, filter jsonb
) returns table (passage_id bigint)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    return query
        select s.passage_id
        from kiwi.score_passages(collection, terms, weights, average_length) as s
        where filter = '{}' or exists (
            select from kiwi.item_embeddings as e
            where e.passage_id = s.passage_id and e.digest in (select f.digest from kiwi.filtered_versions(filter) as f)
        )
        order by s.score desc, s.passage_id
        limit depth;
end
$$;
