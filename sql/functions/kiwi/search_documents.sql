-- As search_hybrid, over the documents of one workspace: the union of both legs' best `depth` passages, each with both raw
-- scores and those of its document. BM25 is scored with the weights and the average lengths that the caller gives.
create or replace function kiwi.search_documents(
    workspace text, query_embedding extensions.vector, terms text[], weights float8[], average_length float8,
    average_item_length float8, depth integer, filter jsonb, model_fingerprint text
) returns table (
    passage_id bigint, path text, digest text, content_sha256 text, metadata jsonb, key_id text, principal text,
    signed_at timestamptz, ordinal integer, text text, context text, heading text[], start_line integer,
    end_line integer, kind text, cosine float8, bm25 float8, best_cosine float8, first_cosine float8,
    centroid_cosine float8, best_bm25 float8, item_bm25 float8, plan text
)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
declare
    number integer := kiwi.workspace_of(workspace, model_fingerprint);
    among bigint[] := kiwi.chosen_documents(number, kiwi.check_document_filter(filter));
    found bigint[];
    whose bigint[];
begin
    perform kiwi.check_size(coalesce(cardinality(terms), 0), depth);
    perform kiwi.check_words(terms, weights, average_length, average_item_length);
    found := array(
        select n.passage_id from kiwi.nearest_document_passages(number, query_embedding, depth, among) as n
        union
        select m.passage_id
        from kiwi.matching_document_passages(number, terms, weights, average_length, depth, among) as m
    );
    whose := array(select distinct p.document_id from kiwi.document_passages as p where p.passage_id = any (found));
    return query
        select
            p.passage_id, d.path, d.digest, d.content_sha256, d.metadata, d.signer, s.principal, d.signed_at, p.ordinal,
            p.text, p.context, p.heading, p.start_line, p.end_line, p.kind,
            scored.cosine, scored.bm25, scored.best_cosine, scored.first_cosine, scored.centroid_cosine,
            scored.best_bm25, scored.item_bm25, case when among is null then 'exact' else 'filtered exact' end
        from kiwi.score_documents(
            number, whose, query_embedding, search_documents.terms, search_documents.weights,
            search_documents.average_length, coalesce(search_documents.average_item_length, 1)
        ) as scored
        join kiwi.document_passages as p on p.passage_id = scored.passage_id
        join kiwi.documents as d on d.document_id = p.document_id
        join kiwi.signers as s on s.key_id = d.signer
        where scored.passage_id = any (found);
end
$$;
