-- Statements of a collection as their readers get them, by their numbers: public ones, the caller's own private ones, and
-- documents. Whoever calls this has chosen them by readable_keys.
create or replace function kiwi.visible_statements(ids bigint[]) returns table (
        sequence bigint, item_type text, item_id text, version text, digest text, content_sha256 text,
        received_at timestamptz, yanked_at timestamptz, yank_reason text, signer_status text, passages bigint,
        searchable boolean, envelope jsonb, visibility text, key_id text, principal text, signed_at timestamptz,
        metadata jsonb
    )
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        with counted as materialized (
            select e.statement_id, e.collection_id, count(*) as passages, bool_or(e.searchable) as searchable
            from kiwi_private.all_passages as e where e.statement_id = any (ids)
            group by e.statement_id, e.collection_id
        ),
        best as (
            select c.statement_id, sum(c.passages)::bigint as passages, bool_or(c.searchable) as searchable
            from counted as c group by c.statement_id
        )
        select v.sequence, v.item_type, v.item_id, v.version, v.digest, v.content_sha256, v.received_at, v.yanked_at,
            v.yank_reason, s.status, coalesce(b.passages, 0),
            coalesce(b.searchable, false) or v.owner_key <> '' and v.yanked_at is null and b.passages > 0,
            kiwi.envelope_of(v), case v.owner_key when '' then 'public' else 'private' end, v.signer, s.principal,
            v.signed_at, v.metadata
        from kiwi_private.all_statements as v
        join kiwi.signers as s on s.key_id = v.signer
        left join best as b on b.statement_id = v.sequence
        where v.sequence = any (ids)
    $$;
