-- Under what keys the caller's own private items stand: its user's, logged in through Supabase, and that of the principal
-- named like its role. A superuser reads every table anyway.
create or replace function kiwi.owner_keys() returns text[]
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if kiwi.is_superuser() then
        return array(select distinct v.owner_key from kiwi_private.statements as v where v.item_type <> 'document');
    end if;
    return array_remove(array['principal:' || kiwi.caller(), 'uid:' || kiwi.user_id()], null);
end
$$;
