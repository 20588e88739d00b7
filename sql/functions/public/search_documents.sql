create or replace function public.search_documents(
    workspace text, query_embedding extensions.vector, terms text[], weights float8[], average_length float8,
    average_item_length float8 default null, depth integer default 100, filter jsonb default '{}',
    model_fingerprint text default null
) returns table (
    passage_id bigint, path text, digest text, content_sha256 text, metadata jsonb, key_id text, principal text,
    signed_at timestamptz, ordinal integer, text text, context text, heading text[], start_line integer,
    end_line integer, kind text, cosine float8, bm25 float8, best_cosine float8, first_cosine float8,
    centroid_cosine float8, best_bm25 float8, item_bm25 float8, plan text
)
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select * from kiwi.search_documents(
            search_documents.workspace, search_documents.query_embedding, search_documents.terms,
            search_documents.weights, search_documents.average_length, search_documents.average_item_length,
            search_documents.depth, search_documents.filter, search_documents.model_fingerprint
        )
    $$;
comment on function public.search_documents is 'Both legs of a search over a workspace''s documents: the best passages by vector and by words, with both scores.';
