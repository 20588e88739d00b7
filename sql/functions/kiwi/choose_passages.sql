-- Which passages of the given public items are to be hidden and which to be shown, so that of each item, in each
-- collection that holds its passages, the newest version that counts is the searchable one. Counts: not yanked, its
-- signer not compromised. Until a new version is indexed the one before it stays. The caller holds the index lock.
create or replace function kiwi.choose_passages(
    item_types text[], folded_ids text[], out to_hide bigint[], out to_show bigint[]
)
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        with versions as (
            select v.item_type, v.folded_id, v.sequence, v.version_key,
                v.yanked_at is null and s.status <> 'compromised' as counts
            from unnest(item_types, folded_ids) as item (item_type, folded_id)
            join kiwi.statements as v on v.owner_key = '' and v.item_type = item.item_type and v.folded_id = item.folded_id
            join kiwi.signers as s on s.key_id = v.signer
        ),
        held as (
            select v.*, e.collection_id, e.passage_id, e.searchable
            from versions as v
            join kiwi.passages as e on e.statement_id = v.sequence
        ),
        ranked as (
            select h.passage_id, h.searchable,
                h.counts and h.sequence = first_value(h.sequence) over (
                    partition by h.item_type, h.folded_id, h.collection_id
                    order by h.counts desc, h.version_key desc, h.sequence desc
                ) as should
            from held as h
        )
        select
            coalesce(array_agg(passage_id) filter (where searchable and not should), '{}'),
            coalesce(array_agg(passage_id) filter (where should and not searchable), '{}')
        from ranked
    $$;
