create or replace function public.search_lexical(
    query text, match_count integer default 20, filter_type text default null, filter jsonb default '{}'
) returns table (
    item_type text, item_id text, version text, digest text, principal text, text text, start_line integer,
    end_line integer, score float8
)
    language sql stable security invoker set search_path = pg_catalog, pg_temp as $$
        select * from kiwi.search_lexical(
            search_lexical.query, search_lexical.match_count,
            kiwi.with_type(search_lexical.filter, search_lexical.filter_type)
        ) $$;
comment on function public.search_lexical is 'Search by words (BM25).';
