create or replace function public.search_hybrid(
    query_embedding extensions.vector, terms text[], weights float8[], average_length float8,
    depth integer default 100, filter jsonb default '{}', model_fingerprint text default null,
    average_item_length float8 default null, collection text default 'items'
) returns table (
    passage_id bigint, item_type text, item_id text, version text, digest text, content_sha256 text, metadata jsonb,
    key_id text, principal text, signed_at timestamptz, ordinal integer, text text, context text, heading text[],
    start_line integer, end_line integer, file text, kind text, cosine float8, bm25 float8, best_cosine float8,
    first_cosine float8, centroid_cosine float8, best_bm25 float8, item_bm25 float8, plan text
)
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select * from kiwi.search_hybrid(
            search_hybrid.query_embedding, search_hybrid.terms, search_hybrid.weights,
            search_hybrid.average_length, search_hybrid.depth, search_hybrid.filter,
            search_hybrid.model_fingerprint, search_hybrid.average_item_length, search_hybrid.collection
        )
    $$;
comment on function public.search_hybrid is 'Both legs of a search: the best passages by vector and by words, with both scores and their items'' scores.';
