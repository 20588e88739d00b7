-- Takes a version back (all versions when none is named): kept and gettable, no longer found. Returns how many.
-- Admins may, and whoever owns the version; what the caller cannot see is not there.
create or replace function kiwi.yank_item(which_type text, which_id text, which_version text, reason text) returns integer
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    admin boolean := pg_has_role(kiwi.caller(), 'kiwi_admin', 'USAGE');
    chosen kiwi.item_versions;
    count integer := 0;
begin
    perform kiwi.lock_item(which_type, which_id);
    for chosen in
        select * from kiwi.item_versions as v
        where v.item_type = which_type and v.folded_id = kiwi.fold_item_id(which_id) and v.yanked_at is null
            and (which_version is null or v.version = which_version)
            and (v.visibility = 'public' or kiwi.is_mine(v.owner_id, v.owner_name))
        order by v.sequence
        for no key update -- what an indexer locks of it may stay locked
    loop
        if not (admin or kiwi.is_mine(chosen.owner_id, chosen.owner_name)) then
            raise exception using
                errcode = 'KW016',
                message = format('%s:%s@%s is not yours to take back', chosen.item_type, chosen.item_id, chosen.version),
                hint = 'ask who published it, or an admin of the registry';
        end if;
        update kiwi.item_versions as v set yanked_at = clock_timestamp(), yank_reason = coalesce(reason, '')
        where v.sequence = chosen.sequence;
        count := count + 1;
        perform kiwi.append_audit(
            'yank', kiwi.public_name_of(chosen), chosen.digest, chosen.signer,
            jsonb_build_object('reason', coalesce(reason, ''))
        );
    end loop;
    if count > 0 then
        perform kiwi.refresh_item(which_type, which_id);
    end if;
    return count;
end
$$;
