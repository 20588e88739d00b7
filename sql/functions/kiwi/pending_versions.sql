-- Each item's newest version that counts but has no passages of this model yet, oldest first, after a sequence number.
-- An owner's private item is one beside the public one of its name.
create or replace function kiwi.pending_versions(model_fingerprint text, max_count integer, after bigint)
    returns table (sequence bigint, envelope jsonb)
    language sql stable security definer
    set search_path = ''
    as $$
        with newest as (
            select distinct on (v.item_type, v.folded_id, v.owner_key) v.*
            from kiwi.item_versions as v
            join kiwi.signers as s on s.key_id = v.signer
            where v.yanked_at is null and s.status <> 'compromised'
            order by v.item_type, v.folded_id, v.owner_key, v.version_key desc, v.sequence desc
        )
        select n.sequence, kiwi.envelope_of(v)
        from newest as n
        join kiwi.item_versions as v on v.sequence = n.sequence
        where n.sequence > after and not exists (
            select from kiwi.item_embeddings as e
            join kiwi.collections as c on c.collection_id = e.collection_id
            where e.digest = n.digest and c.fingerprint = model_fingerprint
        )
        order by n.sequence
        limit max_count
    $$;
