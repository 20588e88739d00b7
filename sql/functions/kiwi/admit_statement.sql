-- The last check before a row exists: runs for every role, the owner and replication included. The signature the table's
-- CHECK verifies, with the enrolled key, whatever the row came with.
create or replace function kiwi.admit_statement() returns trigger
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    predicate jsonb := kiwi.check_payload(new.payload) -> 'predicate';
    signer kiwi.signers;
begin
    if predicate ? 'path' then
        predicate := predicate || jsonb_build_object(
            'item_type', 'document', 'item_id', (predicate ->> 'collection') || '/' || (predicate ->> 'path')
        );
    else
        perform kiwi.lock_item(array[new.owner_key], predicate);
    end if;
    signer := kiwi.check_signer(new.signer, predicate);
    -- The enrolled key, whatever the row came with: the CHECK verifies the signature with it.
    new.public_key := signer.public_key;
    if not predicate ? 'path' then
        if new.owner_key not in ('', kiwi.owner_key_of(signer.user_id, signer.principal)) then
            raise exception using errcode = 'KW016', message = 'a private item is its signer''s own', hint = 'publish it';
        end if;
        perform kiwi.check_version(predicate, new.owner_key);
    end if;
    new.received_at := clock_timestamp();
    return new;
end $$;
