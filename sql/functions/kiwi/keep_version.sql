-- An item version changes in nothing but whether it is yanked, and to whom it is shown.
create or replace function kiwi.keep_version() returns trigger
    language plpgsql
    set search_path = ''
    as $$
begin
    if (new.sequence, new.payload_type, new.payload, new.signature, new.signer, new.received_at)
        is distinct from (old.sequence, old.payload_type, old.payload, old.signature, old.signer, old.received_at)
    then
        raise exception using
            errcode = 'KW014',
            message = format('%s:%s@%s is signed and stays as it is', old.item_type, old.item_id, old.version),
            hint = 'publish a new version, or take this one back with yank_item()';
    end if;
    return new;
end
$$;
