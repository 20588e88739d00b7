-- Takes a version back (all versions when none is named): kept and gettable, no longer found. Returns how many.
create or replace function kiwi.yank_item(which_type text, which_id text, which_version text, reason text) returns integer
    language plpgsql security definer
    set search_path = ''
    as $$
declare
    yanked kiwi.item_versions;
    count integer := 0;
begin
    perform kiwi.lock_item(which_type, which_id);
    for yanked in
        update kiwi.item_versions as v set yanked_at = now(), yank_reason = coalesce(reason, '')
        where v.item_type = which_type and v.folded_id = kiwi.fold_item_id(which_id) and v.yanked_at is null
            and (which_version is null or v.version = which_version)
        returning *
    loop
        count := count + 1;
        perform kiwi.append_audit(
            'yank', format('%s:%s@%s', yanked.item_type, yanked.item_id, yanked.version), yanked.digest, yanked.signer,
            jsonb_build_object('reason', coalesce(reason, ''))
        );
    end loop;
    perform kiwi.refresh_item(which_type, which_id);
    return count;
end
$$;
