-- The union of both legs' best `depth` passages, each with both raw scores. BM25 is scored with the weights and the
-- average length that the caller gives, so that several tiers can share one set of statistics. The caller's own private
-- passages are candidates, too, and hide the public item of their name.
create or replace function kiwi.search_hybrid(
    query_embedding extensions.vector, terms text[], weights float8[], average_length float8, depth integer,
    filter jsonb, model_fingerprint text
) returns table (
    passage_id bigint, item_type text, item_id text, version text, digest text, content_sha256 text, metadata jsonb,
    key_id text, principal text, signed_at timestamptz, ordinal integer, text text, context text, heading text[],
    start_line integer, end_line integer, cosine float8, bm25 float8
)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    collection integer := kiwi.collection_of(model_fingerprint);
    checked jsonb := kiwi.check_filter(filter);
begin
    perform kiwi.check_size(coalesce(cardinality(terms), 0), depth);
    return query
        with own as materialized (
            select * from kiwi.private_passages(collection, checked)
        ),
        found as (
            select n.passage_id from kiwi.nearest_passages(collection, query_embedding, depth, checked) as n
            where query_embedding is not null
            union
            select m.passage_id
            from kiwi.matching_passages(collection, terms, weights, average_length, depth, checked) as m
        ),
        drafts as (
            select distinct o.item_type, o.folded_id from own as o
        ),
        words as (
            select * from kiwi.score_passages(
                collection, search_hybrid.terms, search_hybrid.weights, search_hybrid.average_length,
                array(select f.passage_id from found as f)
            )
            union all
            select * from kiwi.score_private_passages(
                array(select o.passage_id from own as o where o.matches), search_hybrid.terms, search_hybrid.weights,
                search_hybrid.average_length
            )
        )
        select
            e.passage_id, v.item_type, v.item_id, v.version, v.digest, v.content_sha256, v.metadata, v.signer,
            s.principal, v.signed_at, e.ordinal, e.text, e.context, e.heading, e.start_line, e.end_line,
            coalesce(1 - (e.embedding operator(extensions.<=>) query_embedding), 0),
            coalesce(words.score, 0)
        from (
            select f.passage_id, false as is_own from found as f
            union all
            select o.passage_id, true from own as o where o.matches
        ) as f
        join kiwi.item_embeddings as e on e.passage_id = f.passage_id
        join kiwi.item_versions as v on v.digest = e.digest
        join kiwi.signers as s on s.key_id = v.signer
        left join words on words.passage_id = f.passage_id
        where s.status <> 'compromised' and v.yanked_at is null
            and (
                f.is_own
                or e.searchable and v.visibility = 'public'
                    and not exists (select from drafts as d where (d.item_type, d.folded_id) = (v.item_type, v.folded_id))
            );
end
$$;
