-- The newest version that counts of every item that a filter lets through, by type and id; or the documents of another
-- collection, by path.
create or replace function kiwi.list_items(filter jsonb, collection text) returns table (
        item_type text, item_id text, version text, digest text, content_sha256 text, received_at timestamptz,
        yanked_at timestamptz, yank_reason text, signer_status text, passages bigint, envelope jsonb, visibility text
    )
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
#variable_conflict use_column
declare
    wanted jsonb := kiwi.check_filter(list_items.filter, list_items.collection);
    keys text[] := kiwi.readable_keys(list_items.collection);
    chosen bigint[];
begin
    select array_agg(n.sequence) into chosen
    from (
        select distinct on (v.item_type, v.folded_id) v.sequence
        from kiwi_private.all_statements as v
        join kiwi.signers as s on s.key_id = v.signer
        where v.owner_key = any (keys) and v.yanked_at is null and s.status <> 'compromised'
        order by v.item_type, v.folded_id, v.version_key desc, v.owner_key = '', v.sequence desc
    ) as n
    where wanted = '{}' or n.sequence in (
        select f.statement_id from kiwi.filtered_statements(keys[:1], wanted) as f
        union all
        select f.statement_id from kiwi.filtered_statements(keys[2:], wanted) as f
    );
    return query
        select r.item_type, r.item_id, r.version, r.digest, r.content_sha256, r.received_at, r.yanked_at, r.yank_reason,
            r.signer_status, r.passages, r.envelope, r.visibility
        from kiwi.visible_statements(chosen) as r
        order by r.item_type collate "C", r.item_id collate "C";
end
$$;
