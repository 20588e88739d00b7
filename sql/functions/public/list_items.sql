-- The newest version that was not yanked of every item a filter lets through, by type and id.
create or replace function public.list_items(filter jsonb default '{}') returns table (
        item_type text, item_id text, version text, digest text, content_sha256 text, received_at timestamptz,
        yanked_at timestamptz, yank_reason text, signer_status text, passages bigint, envelope jsonb,
        visibility text
    )
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        with newest as (
            select distinct on (s.item_type, s.folded_id) s.digest
            from kiwi.stored_versions as s
            where s.yanked_at is null and s.signer_status <> 'compromised'
            order by s.item_type, s.folded_id, s.version_key desc, s.visibility, s.sequence desc
        )
        select s.item_type, s.item_id, s.version, s.digest, s.content_sha256, s.received_at, s.yanked_at, s.yank_reason,
            s.signer_status, s.passages, s.envelope,
            s.visibility
        from kiwi.stored_versions as s
        join newest on newest.digest = s.digest
        where s.digest in (select f.digest from kiwi.filtered_versions(kiwi.check_filter(list_items.filter)) as f)
        order by s.item_type collate "C", s.item_id collate "C"
    $$;
comment on function public.list_items is 'The newest version of every item that a filter lets through.';
