-- Takes a version back (all versions when none is named): kept and gettable, no longer found. Returns how many.
-- Admins may, and whoever owns the version; what the caller cannot see is not there.
create or replace function kiwi.yank_item(which_type text, which_id text, which_version text, reason text) returns integer
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    admin boolean := pg_has_role(kiwi.caller(), 'kiwi_admin', 'USAGE');
    keys text[] := kiwi.readable_keys('items');
    chosen kiwi_private.all_statements;
    owner text;
    count integer := 0;
begin
    perform kiwi.lock_item(keys, jsonb_build_object('item_type', which_type, 'item_id', which_id));
    for chosen in
        select * from kiwi_private.all_statements as v
        where v.owner_key = any (keys) and v.item_type = which_type and v.folded_id = kiwi.fold_item_id(which_id)
            and v.yanked_at is null and (which_version is null or v.version = which_version)
        order by v.sequence
        for no key update -- what an indexer locks of it may stay locked
    loop
        select kiwi.owner_key_of(s.user_id, s.principal) into owner from kiwi.signers as s where s.key_id = chosen.signer;
        if not (admin or kiwi.is_mine(owner)) then
            raise exception using errcode = 'KW016',
                message = format('%s:%s@%s is not yours to take back', chosen.item_type, chosen.item_id, chosen.version),
                hint = 'ask who published it, or an admin of the registry';
        end if;
        update kiwi_private.all_statements as v set yanked_at = clock_timestamp(), yank_reason = coalesce(reason, '')
        where v.sequence = chosen.sequence;
        count := count + 1;
        perform kiwi.audit_statement('yank', chosen, coalesce(reason, ''));
    end loop;
    if count > 0 then
        perform kiwi.refresh_items(array[which_type], array[kiwi.fold_item_id(which_id)]);
    end if;
    return count;
end $$;
