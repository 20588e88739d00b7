-- What a workspace holds: its model, documents, passages, documents of each file type, and when the last one arrived.
create or replace function kiwi.document_status(workspace text) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        with held as (
            select d.passages, d.received_at, coalesce(d.metadata ->> 'file_type', '') as file_type
            from kiwi.workspaces as w
            join kiwi.documents as d on d.workspace_id = w.workspace_id
            join kiwi.signers as s on s.key_id = d.signer
            where w.name = document_status.workspace and s.status <> 'compromised'
        )
        select jsonb_build_object(
            'audience', (select s.value from kiwi.settings as s where s.name = 'audience'),
            'fingerprint', (select w.fingerprint from kiwi.workspaces as w where w.name = document_status.workspace),
            'documents', (select count(*) from held),
            'passages', (select coalesce(sum(h.passages), 0) from held as h),
            'file_types', (
                select coalesce(jsonb_object_agg(t.file_type, t.documents), '{}')
                from (select h.file_type, count(*) as documents from held as h group by h.file_type) as t
            ),
            'last_received_at', (select max(h.received_at) from held as h)
        )
    $$;
