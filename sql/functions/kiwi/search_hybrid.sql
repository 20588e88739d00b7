-- The union of both legs' best `depth` passages of a collection, each with both raw scores and those of its item. BM25 is
-- scored with the weights and the average lengths that the caller gives, so that several tiers can share one set of
-- statistics. The caller's own private passages compete with the public ones for those places, and hide the public item
-- of their name: more than twice `depth` never come. `plan` tells how the vectors were searched, and adds
-- "words approximate" where the words leg had to stop early; the same on every row.
-- Statements are looked up for what was found, each by itself (OFFSET 0 keeps it so): the planner would begin with all of
-- them, expecting a few.
create or replace function kiwi.search_hybrid(
    query_embedding extensions.vector, terms text[], weights float8[], average_length float8, depth integer,
    filter jsonb, model_fingerprint text, average_item_length float8, collection text
) returns table (
    passage_id bigint, item_type text, item_id text, version text, digest text, content_sha256 text, metadata jsonb,
    key_id text, principal text, signed_at timestamptz, ordinal integer, text text, context text, heading text[],
    start_line integer, end_line integer, file text, kind text, cosine float8, bm25 float8, best_cosine float8,
    first_cosine float8, centroid_cosine float8, best_bm25 float8, item_bm25 float8, plan text
)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
declare
    held kiwi_private.collections;
    checked jsonb := kiwi.check_filter(filter, collection);
    candidates bigint[];
    statements bigint[];
    collections integer[];
    way text;
begin
    perform kiwi.check_size(coalesce(cardinality(terms), 0), depth);
    perform kiwi.check_words(terms, weights, average_length, average_item_length);
    select * into held from kiwi_private.collections as c
    where c.collection_id = kiwi.collection_of(search_hybrid.collection, model_fingerprint);
    with own as materialized (
        select * from kiwi.own_passages(held.fingerprint, checked) where search_hybrid.collection = 'items'
    ),
    near as materialized (
        select n.passage_id, n.plan from kiwi.nearest_passages(held.collection_id, query_embedding, depth, checked) as n
    ),
    words as materialized (
        select m.passage_id, m.exact
        from kiwi.matching_passages(held.collection_id, terms, weights, average_length, depth, checked) as m
    ),
    found as (
        select n.passage_id from near as n
        union
        select w.passage_id from words as w
    ),
    allowed as (
        select e.collection_id, e.passage_id, e.statement_id
        from found as f
        join kiwi_private.all_passages as e on e.collection_id = held.collection_id and e.passage_id = f.passage_id
        where e.searchable and not exists (
            select from own as o
            join kiwi.statements as v on v.owner_key = '' and (v.item_type, v.folded_id) = (o.item_type, o.folded_id)
            where v.sequence = e.statement_id
        )
        union all
        select o.collection_id, o.passage_id, o.statement_id from own as o where o.matches
    )
    select array_agg(a.passage_id), array_agg(distinct a.statement_id), array_agg(distinct a.collection_id), concat_ws(
        ', ', (select min(n.plan) from near as n), case when exists (select from words as w where not w.exact) then 'words approximate' end
    )
    into candidates, statements, collections, way
    from allowed as a;
    return query
        select
            e.passage_id, v.item_type, v.item_id, v.version, v.digest, v.content_sha256, v.metadata, v.signer,
            v.principal, v.signed_at, e.ordinal, e.text, e.context, e.heading, e.start_line, e.end_line, e.file, e.kind,
            scored.cosine, scored.bm25, scored.best_cosine, scored.first_cosine, scored.centroid_cosine,
            scored.best_bm25, scored.item_bm25, way
        from (
            select s.*,
                row_number() over (order by s.cosine desc, s.passage_id) as place_by_vector,
                row_number() over (order by s.bm25 desc, s.passage_id) as place_by_words
            from unnest(collections) as c (id)
            cross join lateral kiwi.score_items(
                c.id, statements, query_embedding, search_hybrid.terms, search_hybrid.weights, search_hybrid.average_length,
                coalesce(search_hybrid.average_item_length, held.total_length::float8 / nullif(held.items, 0), 1)
            ) as s
            where s.passage_id = any (candidates)
        ) as scored
        join kiwi_private.all_passages as e on e.passage_id = scored.passage_id
        cross join lateral (
            select w.*, k.principal from kiwi_private.all_statements as w
            join kiwi.signers as k on k.key_id = w.signer
            where w.sequence = e.statement_id and w.yanked_at is null and k.status <> 'compromised'
            offset 0
        ) as v
        where query_embedding is not null and scored.place_by_vector <= depth
            or scored.place_by_words <= depth;
end
$$;
