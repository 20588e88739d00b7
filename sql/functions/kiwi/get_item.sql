-- One version of an item (the newest that counts, when none is named), or a document, as it was handed in, with the files
-- that are named (null: all).
create or replace function kiwi.get_item(
    which_type text, which_id text, which_version text, names text[], collection text
) returns table (
        item_type text, item_id text, version text, digest text, content_sha256 text, received_at timestamptz,
        yanked_at timestamptz, yank_reason text, signer_status text, passages bigint, envelope jsonb, visibility text,
        files jsonb
    )
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        with chosen as materialized (
            select v.sequence
            from kiwi_private.all_statements as v
            join kiwi.signers as s on s.key_id = v.signer
            where v.owner_key = any (kiwi.readable_keys(get_item.collection))
                and v.folded_id = case get_item.collection when 'items' then kiwi.fold_item_id(which_id) else which_id end
                and (which_type is null or v.item_type = which_type)
                and case
                    when which_version is null then v.yanked_at is null and s.status <> 'compromised'
                    else v.version = which_version
                end
            order by v.version_key desc, v.owner_key = '', v.sequence desc
            limit 1
        )
        select r.item_type, r.item_id, r.version, r.digest, r.content_sha256, r.received_at, r.yanked_at, r.yank_reason,
            r.signer_status, r.passages, r.envelope, r.visibility, kiwi.files_of(v, names)
        from chosen as c
        join kiwi_private.all_statements as v on v.sequence = c.sequence
        cross join lateral kiwi.visible_statements(array[c.sequence]) as r
    $$;
