-- The newest version that was not yanked of every item a filter lets through, by type and id.
create or replace function public.list_items(filter jsonb default '{}') returns table (
        item_type text, item_id text, version text, digest text, content_sha256 text, received_at timestamptz,
        yanked_at timestamptz, yank_reason text, signer_status text, passages bigint, envelope jsonb,
        visibility text
    )
    language plpgsql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
#variable_conflict use_column
declare
    asked jsonb := kiwi.check_filter(list_items.filter);
begin
    return query
        with newest as materialized (
            select distinct on (v.item_type, v.folded_id) v.sequence, v.digest, s.status
            from kiwi.item_versions as v
            join kiwi.signers as s on s.key_id = v.signer
            where (v.visibility = 'public' or kiwi.is_mine(v.owner_id, v.owner_name))
                and v.yanked_at is null and s.status <> 'compromised'
            order by v.item_type, v.folded_id, v.version_key desc, v.visibility, v.sequence desc
        ),
        chosen as materialized (
            select n.sequence, n.digest, n.status from newest as n
            where asked = '{}' or n.digest in (select f.digest from kiwi.filtered_versions(asked) as f)
        )
        select v.item_type, v.item_id, v.version, v.digest, v.content_sha256, v.received_at, v.yanked_at, v.yank_reason,
            c.status, coalesce(counted.passages, 0), kiwi.envelope_of(v), v.visibility
        from chosen as c
        join kiwi.item_versions as v on v.sequence = c.sequence
        left join kiwi.passage_counts(array(select one.digest from chosen as one)) as counted on counted.digest = c.digest
        order by v.item_type collate "C", v.item_id collate "C";
end
$$;
comment on function public.list_items is 'The newest version of every item that a filter lets through.';
