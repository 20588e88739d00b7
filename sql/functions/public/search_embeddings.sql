create or replace function public.search_embeddings(
    query_embedding extensions.vector, match_count integer default 20, filter_type text default null,
    filter jsonb default '{}'
) returns table (
    item_type text, item_id text, version text, digest text, principal text, text text, start_line integer,
    end_line integer, similarity float8
)
    language sql stable security invoker set search_path = pg_catalog, pg_temp as $$
        select * from kiwi.search_embeddings(
            search_embeddings.query_embedding, search_embeddings.match_count,
            kiwi.with_type(search_embeddings.filter, search_embeddings.filter_type)
        ) $$;
comment on function public.search_embeddings is 'Search by meaning: the nearest passages to a vector.';
