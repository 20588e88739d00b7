-- BM25 alone, over the registry's items and their own statistics.
create or replace function kiwi.search_lexical(query text, match_count integer, filter jsonb)
    returns table (
        item_type text, item_id text, version text, digest text, principal text, text text, start_line integer,
        end_line integer, score float8
    )
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        with stats as (
            select s, greatest((s ->> 'passages')::float8, 1) as n, (s ->> 'total_length')::float8 as total
            from kiwi.collection_statistics(kiwi.query_terms(query), null, 'items') as s
        ),
        inputs as (
            select
                array_agg(d.term order by d.term) as terms,
                array_agg(ln(1 + (stats.n - d.df::float8 + 0.5) / (d.df::float8 + 0.5)) order by d.term) as weights,
                max(stats.total / stats.n) as average
            from stats, jsonb_each_text(stats.s -> 'document_frequency') as d (term, df)
        )
        select h.item_type, h.item_id, h.version, h.digest, h.principal, h.text, h.start_line, h.end_line, h.bm25
        from inputs as i,
            kiwi.search_hybrid(null, i.terms, i.weights, greatest(i.average, 1), match_count, filter, null, null, 'items') as h
        order by h.bm25 desc, h.passage_id
        limit match_count
    $$;
