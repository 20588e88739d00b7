-- The `depth` searchable passages nearest to a query, exactly: every one that the filter lets through is compared.
-- The sum keeps an index, which is approximate, out of the plan. The collection stands in the statement as a number, so
-- that the plan is that of its partition.
create or replace function kiwi.nearest_exactly(
    collection integer, query_embedding extensions.vector, depth integer, filter jsonb
) returns table (passage_id bigint)
    language plpgsql stable rows 100
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
begin
    return query execute
        format(
            'select e.passage_id from kiwi_private.all_passages as e
            where e.searchable and e.collection_id = %s and e.embedding is not null', collection
        )
        || case when filter = '{}' then '' else
            format(
                ' and e.statement_id in (select v.sequence from %s as v where v.owner_key = $4 and %s)',
                kiwi.statements_table(collection), kiwi.filter_condition(filter)
            )
        end
        || ' order by 0 + (e.embedding operator(extensions.<=>) $2), e.passage_id limit $3'
        using filter, query_embedding, depth, kiwi.owner_of(collection);
end
$$;
