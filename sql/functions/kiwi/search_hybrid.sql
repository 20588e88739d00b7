-- The union of both legs' best `depth` passages, each with both raw scores and those of its item. BM25 is scored with the
-- weights and the average lengths that the caller gives, so that several tiers can share one set of statistics. The
-- caller's own private passages compete with the public ones for those places, and hide the public item of their name:
-- more than twice `depth` never come. `plan` tells how the vectors
-- were searched, and adds "words approximate" where the words leg had to stop early; the same on every row.
-- Versions are looked up for what was found, each by itself (OFFSET 0 keeps it so): item_versions keeps no statistics, lest
-- plans tell of what is private, and the planner would begin with all of them, expecting a few.
create or replace function kiwi.search_hybrid(
    query_embedding extensions.vector, terms text[], weights float8[], average_length float8, depth integer,
    filter jsonb, model_fingerprint text, average_item_length float8
) returns table (
    passage_id bigint, item_type text, item_id text, version text, digest text, content_sha256 text, metadata jsonb,
    key_id text, principal text, signed_at timestamptz, ordinal integer, text text, context text, heading text[],
    start_line integer, end_line integer, cosine float8, bm25 float8, best_cosine float8, first_cosine float8,
    centroid_cosine float8, best_bm25 float8, item_bm25 float8, plan text
)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
declare
    collection integer := kiwi.collection_of(model_fingerprint);
    checked jsonb := kiwi.check_filter(filter);
    candidates bigint[];
    digests text[];
    way text;
begin
    perform kiwi.check_size(coalesce(cardinality(terms), 0), depth);
    perform kiwi.check_words(terms, weights, average_length, average_item_length);
    with own as materialized (
        select * from kiwi.private_passages(collection, checked)
    ),
    near as materialized (
        select n.passage_id, n.plan from kiwi.nearest_passages(collection, query_embedding, depth, checked) as n
    ),
    words as materialized (
        select m.passage_id, m.exact
        from kiwi.matching_passages(collection, terms, weights, average_length, depth, checked) as m
    ),
    found as (
        select n.passage_id from near as n
        union
        select w.passage_id from words as w
    ),
    allowed as (
        select e.passage_id, e.digest
        from found as f
        join kiwi.item_embeddings as e on e.passage_id = f.passage_id
        cross join lateral (
            select w.item_type, w.folded_id from kiwi.item_versions as w where w.digest = e.digest and w.visibility = 'public'
            offset 0
        ) as v
        where e.searchable and not exists (select from own as o where (o.item_type, o.folded_id) = (v.item_type, v.folded_id))
        union all
        select o.passage_id, e.digest
        from own as o
        join kiwi.item_embeddings as e on e.passage_id = o.passage_id
        where o.matches
    )
    select array_agg(a.passage_id), array_agg(distinct a.digest), concat_ws(
        ', ', (select min(n.plan) from near as n), case when exists (select from words as w where not w.exact) then 'words approximate' end
    )
    into candidates, digests, way
    from allowed as a;
    return query
        select
            e.passage_id, v.item_type, v.item_id, v.version, v.digest, v.content_sha256, v.metadata, v.signer,
            v.principal, v.signed_at, e.ordinal, e.text, e.context, e.heading, e.start_line, e.end_line,
            scored.cosine, scored.bm25, scored.best_cosine, scored.first_cosine, scored.centroid_cosine,
            scored.best_bm25, scored.item_bm25, way
        from (
            select s.*,
                row_number() over (order by s.cosine desc, s.passage_id) as place_by_vector,
                row_number() over (order by s.bm25 desc, s.passage_id) as place_by_words
            from kiwi.score_items(
                collection, digests, query_embedding, search_hybrid.terms, search_hybrid.weights,
                search_hybrid.average_length,
                coalesce(
                    search_hybrid.average_item_length,
                    (select c.total_length::float8 / nullif(c.items, 0) from kiwi.collections as c where c.collection_id = collection),
                    1
                )
            ) as s
            where s.passage_id = any (candidates)
        ) as scored
        join kiwi.item_embeddings as e on e.passage_id = scored.passage_id
        cross join lateral (
            select w.*, k.principal from kiwi.item_versions as w
            join kiwi.signers as k on k.key_id = w.signer
            where w.digest = e.digest and w.yanked_at is null and k.status <> 'compromised'
            offset 0
        ) as v
        where query_embedding is not null and scored.place_by_vector <= depth
            or scored.place_by_words <= depth;
end
$$;
