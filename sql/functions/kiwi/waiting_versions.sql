-- Each item's newest version that counts but has no passages of this model yet, in order of arrival, up to `max_count`
-- (null: all) after a sequence number. An owner's private item is one beside the public one of its name. No model has an
-- empty name: everything that counts waits for it. `offset 0` has each row asked by itself, in order: a page stops when
-- it is full, where a join would go through all.
create or replace function kiwi.waiting_versions(
    model_fingerprint text, after bigint default 0, max_count integer default null
) returns table (sequence bigint, digest text)
    language sql stable rows 1000
    set search_path = pg_catalog, pg_temp
    set enable_sort = off -- the key's own order: without statistics of the table the planner would sort it whole
    as $$
        select v.sequence, v.digest
        from kiwi.item_versions as v
        join kiwi.signers as s on s.key_id = v.signer
        where v.sequence > after and v.yanked_at is null and s.status <> 'compromised'
            and not exists (
                select from kiwi.item_embeddings as e
                where e.digest = v.digest
                    and e.collection_id = (select c.collection_id from kiwi.collections as c where c.fingerprint = model_fingerprint)
                offset 0
            )
            and not exists (
                select from kiwi.item_versions as newer
                join kiwi.signers as by on by.key_id = newer.signer
                where newer.folded_id = v.folded_id and newer.item_type = v.item_type and newer.owner_key = v.owner_key
                    and (newer.version_key, newer.sequence) > (v.version_key, v.sequence)
                    and newer.yanked_at is null and by.status <> 'compromised'
                offset 0
            )
        order by v.sequence
        limit max_count
    $$;
