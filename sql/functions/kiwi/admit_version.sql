-- The last wall before a row exists: runs for every role, the owner and replication included.
create or replace function kiwi.admit_version() returns trigger
    language plpgsql
    set search_path = ''
    as $$
declare
    statement jsonb;
begin
    statement := kiwi.check_statement(new.payload);
    perform kiwi.lock_item(statement ->> 'item_type', statement ->> 'item_id');
    perform kiwi.check_signer(new.signer, statement);
    perform kiwi.check_version(statement);
    new.received_at := now();
    return new;
end
$$;
