-- Makes an item's newest version that counts the searchable one, in each collection that holds its passages.
-- Counts: public, not yanked, its signer not compromised. Until a new version is indexed the one before it stays.
create or replace function kiwi.refresh_item(which_type text, which_id text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    to_hide bigint[];
    to_show bigint[];
begin
    perform kiwi.lock_index();
    with versions as (
        select v.digest, v.version_key, v.sequence,
            v.visibility = 'public' and v.yanked_at is null and s.status <> 'compromised' as counts
        from kiwi.item_versions as v
        join kiwi.signers as s on s.key_id = v.signer
        where v.item_type = which_type and v.folded_id = kiwi.fold_item_id(which_id)
    ),
    chosen as (
        select distinct on (e.collection_id) e.collection_id, v.digest
        from versions as v
        join kiwi.item_embeddings as e on e.digest = v.digest
        where v.counts
        order by e.collection_id, v.version_key desc, v.sequence desc
    ),
    wanted as (
        select e.passage_id, e.searchable, c.digest is not null as should
        from versions as v
        join kiwi.item_embeddings as e on e.digest = v.digest
        left join chosen as c on c.collection_id = e.collection_id and c.digest = e.digest
    )
    select
        coalesce(array_agg(passage_id) filter (where searchable and not should), '{}'),
        coalesce(array_agg(passage_id) filter (where should and not searchable), '{}')
    into to_hide, to_show
    from wanted;
    perform kiwi.withdraw_passages(to_hide);
    perform kiwi.offer_passages(to_show);
end
$$;
