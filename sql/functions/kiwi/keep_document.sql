-- A document's row changes in nothing but the rules that its file was judged by: other bytes are another row.
create or replace function kiwi.keep_document() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if (
            new.document_id, new.workspace_id, new.payload_type, new.payload, new.signature, new.signer, new.public_key,
            new.received_at, new.total_length
        ) is distinct from (
            old.document_id, old.workspace_id, old.payload_type, old.payload, old.signature, old.signer, old.public_key,
            old.received_at, old.total_length
        )
    then
        raise exception using
            errcode = 'KW014',
            message = format('document %s is signed and stays as it is', kiwi.document_name(old.workspace, old.path)),
            hint = 'index the file again: kiwi workspace index --file PATH';
    end if;
    return new;
end
$$;
