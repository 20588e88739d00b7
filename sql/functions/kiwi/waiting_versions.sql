-- Each item's newest version that counts but has no passages of this model yet. An owner's private item is one beside
-- the public one of its name. No model has an empty name: everything that counts waits for it.
create or replace function kiwi.waiting_versions(model_fingerprint text) returns table (sequence bigint, digest text)
    language sql stable rows 1000
    set search_path = pg_catalog, pg_temp
    as $$
        with newest as (
            select distinct on (v.item_type, v.folded_id, v.owner_key) v.sequence, v.digest
            from kiwi.item_versions as v
            join kiwi.signers as s on s.key_id = v.signer
            where v.yanked_at is null and s.status <> 'compromised'
            order by v.item_type, v.folded_id, v.owner_key, v.version_key desc, v.sequence desc
        )
        select n.sequence, n.digest from newest as n
        where not exists (
            select from kiwi.item_embeddings as e
            join kiwi.collections as c on c.collection_id = e.collection_id
            where e.digest = n.digest and c.fingerprint = model_fingerprint
        )
    $$;
