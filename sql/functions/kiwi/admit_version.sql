-- The last wall before a row exists: runs for every role, the owner and replication included.
create or replace function kiwi.admit_version() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    statement jsonb;
begin
    statement := kiwi.check_statement(new.payload);
    perform kiwi.lock_item(statement ->> 'item_type', statement ->> 'item_id');
    perform kiwi.check_signer(new.signer, statement);
    -- The enrolled key, whatever the row came with: the CHECK verifies the signature with it.
    select public_key, principal, user_id into new.public_key, new.owner_name, new.owner_id
    from kiwi.signers where key_id = new.signer;
    perform kiwi.check_version(statement, kiwi.owner_key_of(new.visibility, new.owner_id, new.owner_name));
    new.received_at := clock_timestamp();
    return new;
end
$$;
