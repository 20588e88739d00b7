-- The vector leg alone, over the active model's collection.
create or replace function kiwi.search_embeddings(query_embedding extensions.vector, match_count integer, filter jsonb)
    returns table (
        item_type text, item_id text, version text, digest text, principal text, text text, start_line integer,
        end_line integer, similarity float8
    )
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select h.item_type, h.item_id, h.version, h.digest, h.principal, h.text, h.start_line, h.end_line, h.cosine
        from kiwi.search_hybrid(query_embedding, '{}', '{}', 1, match_count, filter, null) as h
        order by h.cosine desc, h.passage_id
        limit match_count
    $$;
