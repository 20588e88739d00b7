-- The vector leg: the `depth` searchable passages nearest to a query, and the way they were found. Without an index, and
-- under a filter that lets few through, exactly; else by the index, and exactly after all where it brought too few:
-- whoever asks for k gets k if there are k.
create or replace function kiwi.nearest_passages(
    collection integer, query_embedding extensions.vector, depth integer, filter jsonb
) returns table (passage_id bigint, plan text)
    language plpgsql stable rows 100
    set search_path = pg_catalog, pg_temp
    as $$
declare
    tuned kiwi.vector_indexes := kiwi.usable_index(collection);
    way text := case when filter = '{}' then 'exact' else 'filtered exact' end;
    wide integer := case when filter = '{}' then tuned.effort else tuned.wide_effort end;
    ids bigint[];
begin
    if query_embedding is null then
        return;
    end if;
    if tuned.method is not null and not (filter <> '{}' and kiwi.lets_few_through(collection, filter)) then
        ids := array(
            select n.passage_id from kiwi.nearest_by_index(
                collection, query_embedding, depth, filter, wide, case when tuned.method = 'hnsw' then 40000 else 4 * wide end
            ) as n
        );
        if cardinality(ids) = depth
            or filter = '{}' and cardinality(ids) = (select c.passages from kiwi.collections as c where c.collection_id = collection)
        then
            return query select near.id, tuned.method from unnest(ids) as near (id);
            return;
        end if;
        way := format('%s, then %s', tuned.method, way);
    end if;
    return query select n.passage_id, way from kiwi.nearest_exactly(collection, query_embedding, depth, filter) as n;
end
$$;
