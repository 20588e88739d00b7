-- What a client that pinned this registry has to know: the audit head now, the hash at the number it pinned, what was
-- yanked after that, and the keys that lost trust: all, or those of which the audit tells after record `signers_since`.
-- One snapshot.
create or replace function kiwi.registry_checkpoint(known_seq bigint, signers_since bigint) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select jsonb_build_object(
            'audit_head', kiwi.audit_head(),
            'known_hash', (select a.hash from kiwi.audit as a where a.seq = known_seq),
            'yanked', coalesce(
                (
                    select jsonb_agg(gone.digest) from (
                        select a.digest
                        from kiwi.audit as a
                        where known_seq > 0 and a.seq > known_seq and a.event = 'yank'
                        order by a.seq desc
                        limit 10000
                    ) as gone
                ),
                '[]'
            ),
            'signers', coalesce(
                (
                    select jsonb_agg(to_jsonb(lost)) from (
                        select s.key_id, s.principal, s.status, s.status_changed_at, s.status_reason
                        from kiwi.signers as s
                        where s.status <> 'active'
                            and (signers_since <= 0 or s.key_id in (
                                select a.key_id from kiwi.audit as a
                                where a.seq > signers_since and a.event in ('retired', 'compromised')
                            ))
                        order by s.status, s.status_changed_at desc
                        limit 10000
                    ) as lost
                ),
                '[]'
            )
        )
    $$;
