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
    held kiwi_private.collections;
    tuned kiwi_private.vector_indexes := kiwi.usable_index(collection);
    way text := case when filter = '{}' then 'exact' else 'filtered exact' end;
    wide integer := case when filter = '{}' then tuned.effort else tuned.wide_effort end;
    ids bigint[];
begin
    select * into held from kiwi_private.collections as c where c.collection_id = collection;
    if query_embedding is null or held.collection_id is null then
        return;
    elsif extensions.vector_dims(query_embedding) <> held.dimension then
        raise exception using
            errcode = 'KW011',
            message = format('a query of %s dimensions, and the vectors here are of %s', extensions.vector_dims(query_embedding), held.dimension),
            hint = format('use the model %s', held.fingerprint);
    end if;
    if tuned.method is not null and not (filter <> '{}' and kiwi.is_selective(collection, filter)) then
        ids := array(
            select n.passage_id from kiwi.nearest_by_index(
                collection, query_embedding, depth, filter, wide, case when tuned.method = 'hnsw' then 40000 else 4 * wide end
            ) as n
        );
        if cardinality(ids) = depth or filter = '{}' and cardinality(ids) = held.passages then
            return query select near.id, tuned.method from unnest(ids) as near (id);
            return;
        end if;
        way := format('%s, then %s', tuned.method, way);
    end if;
    return query select n.passage_id, way from kiwi.nearest_exactly(collection, query_embedding, depth, filter) as n;
end
$$;
