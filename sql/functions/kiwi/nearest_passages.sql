-- The vector leg: the `depth` searchable passages nearest to a query, exactly. An index's plan would go here.
create or replace function kiwi.nearest_passages(
    collection integer, query_embedding extensions.vector, depth integer, filter jsonb
) returns table (passage_id bigint)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if filter = '{}' then
        return query
            select e.passage_id from kiwi.item_embeddings as e
            where e.searchable and e.collection_id = collection
            order by e.embedding operator(extensions.<=>) query_embedding, e.passage_id
            limit depth;
    else
        return query
            select e.passage_id from kiwi.item_embeddings as e
            where e.searchable and e.collection_id = collection
                and e.digest in (select f.digest from kiwi.filtered_versions(filter) as f)
            order by e.embedding operator(extensions.<=>) query_embedding, e.passage_id
            limit depth;
    end if;
end
$$;
