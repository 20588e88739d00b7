-- The `depth` searchable passages nearest to a query as the collection's index tells, which keeps halves of the floats:
-- a few more are taken, and ordered by the vectors themselves. `effort` is how many lists are probed, or ef_search. The
-- scan goes on until there are enough, up to `most` lists (ivfflat) or passages (hnsw): under a narrow filter, fewer
-- may come back than there are. The plan is the index's in the order of distance, each passage's statement looked up in it.
--
-- The collection stands in the statement as a number, since an index of a part of the table is used for that part alone.
-- pgvector's settings are set and put back by hand. In SET clauses a restore could not create the function: it has not
-- loaded the library yet, and only a superuser may name settings that nobody knows.
create or replace function kiwi.nearest_by_index(
    collection integer, query_embedding extensions.vector, depth integer, filter jsonb, effort integer, most integer
) returns table (passage_id bigint)
    language plpgsql stable rows 100
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off
    as $$
declare
    loaded constant extensions.vector := '[1]'; -- the library, and with it its settings
    names constant text[] := array[
        'ivfflat.iterative_scan', 'ivfflat.probes', 'ivfflat.max_probes',
        'hnsw.iterative_scan', 'hnsw.ef_search', 'hnsw.max_scan_tuples'
    ];
    before constant text[] := array(
        select current_setting(u.name) from unnest(names) with ordinality as u (name, place) order by u.place
    );
begin
    perform set_config(u.name, u.value, true)
    from unnest(
        names,
        array[
            'relaxed_order', least(effort, 32768)::text, least(greatest(most, effort), 32768)::text,
            'relaxed_order', least(greatest(effort, depth + 10), 1000)::text, greatest(most, 1)::text
        ]
    ) as u (name, value);
    return query execute format(
        'with near as materialized (
            select e.passage_id, e.embedding from %s as e
            where e.searchable and e.collection_id = %s%s
            order by e.embedding::extensions.halfvec(%s) operator(extensions.<=>) $2::extensions.halfvec(%4$s)
            limit $3 + 10
        )
        select n.passage_id from near as n order by n.embedding operator(extensions.<=>) $2, n.passage_id limit $3',
        replace(kiwi.statements_table(collection), 'statements', 'passages'), collection,
        case when filter = '{}' then '' else
            -- by its number (OFFSET 0 keeps it so): the planner would go through all that the filter lets through
            format(
                ' and (select %s from (select w.* from %s as w where w.sequence = e.statement_id offset 0) as v)',
                kiwi.filter_condition(filter), kiwi.statements_table(collection)
            )
        end,
        extensions.vector_dims(query_embedding)
    )
    using filter, query_embedding, depth;
    perform set_config(u.name, u.value, true) from unnest(names, before) as u (name, value);
end
$$;
