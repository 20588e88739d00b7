-- Records of the audit log after `since`, in order, for those who may read it; `details` as the text that was hashed.
create or replace function public.audit_records(since bigint default 0, max_count integer default 1000) returns table (
        seq bigint, at text, event text, ref text, digest text, key_id text, details text, previous_hash text, hash text
    )
    language sql stable security invoker set search_path = pg_catalog, pg_temp as $$
        select a.seq, to_char(a.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), a.event, a.ref, a.digest,
            a.key_id, a.details::text, a.previous_hash, a.hash
        from kiwi.audit as a
        where a.seq > audit_records.since
        order by a.seq
        limit least(greatest(audit_records.max_count, 1), 10000) $$;
comment on function public.audit_records is 'The audit log, record by record, for admins: with it a client verifies the chain by itself.';
