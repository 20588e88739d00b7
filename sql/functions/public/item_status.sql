-- What became of an item: newest version, whether it is found, yanked, or its signer revoked.
create or replace function public.item_status(item_id text, item_type text default null) returns table (
        item_type text, item_id text, version text, digest text, signer_status text, yanked_at timestamptz,
        passages bigint, searchable boolean, visibility text
    )
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select s.item_type, s.item_id, s.version, s.digest, s.signer_status, s.yanked_at, s.passages, s.searchable,
            s.visibility
        from kiwi.stored_versions as s
        where s.folded_id = kiwi.fold_item_id(item_status.item_id)
            and (item_status.item_type is null or s.item_type = item_status.item_type)
        order by s.version_key desc, s.sequence desc
    $$;
comment on function public.item_status is 'What became of each version of an item.';
