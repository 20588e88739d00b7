-- An item version changes in nothing but whether it is yanked, and from private to public.
create or replace function kiwi.keep_version() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if (
            new.sequence, new.payload_type, new.payload, new.signature, new.signer, new.public_key, new.received_at,
            new.owner_id, new.owner_name
        ) is distinct from (
            old.sequence, old.payload_type, old.payload, old.signature, old.signer, old.public_key, old.received_at,
            old.owner_id, old.owner_name
        )
        or (old.visibility = 'public' and new.visibility <> 'public')
    then
        raise exception using
            errcode = 'KW014',
            message = format('%s:%s@%s is signed and stays as it is', old.item_type, old.item_id, old.version),
            hint = 'publish a new version, or take this one back with yank_item()';
    end if;
    return new;
end
$$;
