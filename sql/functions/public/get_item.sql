-- One version of an item (the newest that was not yanked, when none is named), as it was handed in.
create or replace function public.get_item(item_id text, version text default null, item_type text default null)
    returns table (
        item_type text, item_id text, version text, digest text, content_sha256 text, received_at timestamptz,
        yanked_at timestamptz, yank_reason text, signer_status text, passages bigint, envelope jsonb,
        visibility text
    )
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select s.item_type, s.item_id, s.version, s.digest, s.content_sha256, s.received_at, s.yanked_at, s.yank_reason,
            s.signer_status, s.passages, s.envelope,
            s.visibility
        from kiwi.stored_versions as s
        where s.folded_id = kiwi.fold_item_id(get_item.item_id)
            and (get_item.item_type is null or s.item_type = get_item.item_type)
            and case
                when get_item.version is null then s.yanked_at is null and s.signer_status <> 'compromised'
                else s.version = get_item.version
            end
        order by s.version_key desc, s.visibility, s.sequence desc
        limit 1
    $$;
comment on function public.get_item is 'One version of an item, with its signed envelope; the newest when none is named.';
