-- A query's distinct terms, made in SQL for callers that have no Kiwi at hand. Close to kiwi_rag.lexical, not equal:
-- Postgres has its own stop words and its own edition of the Snowball stemmer.
create or replace function kiwi.query_terms(query text) returns text[]
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        with words as (
            select m[1] as word, place from regexp_matches(left(query, 10000), '[[:word:]]+', 'g') with ordinality as found (m, place)
        ),
        pieces as (
            select word as piece, place, 0 as part from words
            union all
            select m[1], w.place, 1
            from words as w, regexp_matches(w.word, '[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+', 'g') as m
            where m[1] <> w.word
        ),
        stems as (
            select (ts_lexize('pg_catalog.english_stem', lower(trim(both '_' from piece))))[1] as term, place, part from pieces
        )
        select coalesce(array_agg(term order by place, part), '{}')
        from (select distinct on (term) * from stems where term <> '' order by term, place, part) as distinct_stems
    $$;
