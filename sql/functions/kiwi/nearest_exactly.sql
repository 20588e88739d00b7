-- The `depth` searchable passages nearest to a query, exactly: every one that the filter lets through is compared.
-- The sum keeps an index, which is approximate, out of the plan.
create or replace function kiwi.nearest_exactly(
    collection integer, query_embedding extensions.vector, depth integer, filter jsonb
) returns table (passage_id bigint)
    language plpgsql stable rows 100
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
begin
    return query execute
        'select e.passage_id from kiwi.item_embeddings as e where e.searchable and e.collection_id = $2'
        || case when filter = '{}' then '' else
            ' and e.digest in (select v.digest from kiwi.item_versions as v where v.visibility = ''public'' and '
            || kiwi.filter_condition(filter) || ')'
        end
        || ' order by 0 + (e.embedding operator(extensions.<=>) $3), e.passage_id limit $4'
        using filter, collection, query_embedding, depth;
end
$$;
