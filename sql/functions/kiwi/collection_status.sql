-- What a collection of documents holds: its model, documents, passages, documents of each file type, and when the last
-- one arrived.
create or replace function kiwi.collection_status(collection text) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        with held as (
            select v.signed_passages, v.received_at, coalesce(v.metadata ->> 'file_type', '') as file_type
            from kiwi_private.statements as v
            join kiwi.signers as s on s.key_id = v.signer
            where v.owner_key = any (kiwi.readable_keys(collection_status.collection)) and v.item_type = 'document'
                and s.status <> 'compromised'
        )
        select jsonb_build_object(
            'audience', (select s.value from kiwi.settings as s where s.name = 'audience'),
            'fingerprint', (
                select c.fingerprint from kiwi_private.collections as c
                where c.owner_key = 'collection:' || collection_status.collection
            ),
            'documents', (select count(*) from held),
            'passages', (select coalesce(sum(h.signed_passages), 0) from held as h),
            'file_types', (
                select coalesce(jsonb_object_agg(t.file_type, t.documents), '{}')
                from (select h.file_type, count(*) as documents from held as h group by h.file_type) as t
            ),
            'last_received_at', (select max(h.received_at) from held as h)
        )
    $$;
