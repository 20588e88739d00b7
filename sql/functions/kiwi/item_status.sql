-- What became of an item: each version, newest first, whether it is found, yanked, or its signer revoked.
create or replace function kiwi.item_status(which_type text, which_id text) returns table (
        item_type text, item_id text, version text, digest text, signer_status text, yanked_at timestamptz,
        passages bigint, searchable boolean, visibility text, content_sha256 text, key_id text, received_at timestamptz
    )
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select r.item_type, r.item_id, r.version, r.digest, r.signer_status, r.yanked_at, r.passages, r.searchable,
            r.visibility, r.content_sha256, r.key_id, r.received_at
        from kiwi.visible_statements(array(
            select v.sequence from kiwi_private.all_statements as v
            where v.owner_key = any (kiwi.readable_keys('items')) and v.folded_id = kiwi.fold_item_id(which_id)
                and (which_type is null or v.item_type = which_type)
        )) as r
        order by kiwi.version_key(r.version) desc, r.sequence desc
    $$;
