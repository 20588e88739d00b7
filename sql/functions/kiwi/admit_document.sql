-- The last wall before a document's row exists: runs for every role, the owner and replication included. Its signature
-- the table's CHECK verifies, with the enrolled key, whatever the row came with.
create or replace function kiwi.admit_document() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    statement jsonb := kiwi.check_document(new.payload);
begin
    select w.workspace_id into new.workspace_id from kiwi.workspaces as w where w.name = statement ->> 'workspace';
    perform kiwi.check_signer(
        new.signer,
        jsonb_build_object(
            'item_type', 'document', 'signed_at', statement -> 'signed_at',
            'item_id', kiwi.document_name(statement ->> 'workspace', statement ->> 'path')
        )
    );
    select public_key into new.public_key from kiwi.signers where key_id = new.signer;
    new.received_at := clock_timestamp();
    return new;
end
$$;
