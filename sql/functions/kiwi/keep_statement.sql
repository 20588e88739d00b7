-- A statement changes in nothing but whether it is yanked.
create or replace function kiwi.keep_statement() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if (
            new.sequence, new.payload_type, new.payload, new.signature, new.signer, new.public_key, new.received_at, new.owner_key
        ) is distinct from (
            old.sequence, old.payload_type, old.payload, old.signature, old.signer, old.public_key, old.received_at, old.owner_key
        )
    then
        raise exception using
            errcode = 'KW014',
            message = format('%s:%s@%s is signed and stays as it is', old.item_type, old.item_id, old.version),
            hint = 'publish a new version, or take this one back with yank_item()';
    end if;
    return new;
end
$$;
