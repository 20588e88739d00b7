-- Every version of an item that was ever taken, the yanked ones too, oldest first.
create or replace function public.list_versions(item_id text, item_type text default null) returns table (
        item_type text, version text, digest text, content_sha256 text, key_id text, received_at timestamptz,
        yanked_at timestamptz
    )
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select v.item_type, v.version, v.digest, v.content_sha256, v.signer, v.received_at, v.yanked_at
        from kiwi.item_versions as v
        where v.folded_id = kiwi.fold_item_id(list_versions.item_id)
            and (list_versions.item_type is null or v.item_type = list_versions.item_type)
            and (v.visibility = 'public' or kiwi.is_mine(v.owner_id, v.owner_name))
        order by v.version_key, v.sequence
    $$;
comment on function public.list_versions is 'Every version of an item that was ever taken.';
