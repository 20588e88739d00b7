-- The hash of one audit record: sha256 over its fields, a line each. No field but `details` can hold a newline, and
-- jsonb writes its own escaped, so no two records give the same text.
create or replace function kiwi.audit_hash(record kiwi.audit) returns text
    language sql stable set search_path = pg_catalog, pg_temp as $$
        select encode(sha256(convert_to(concat_ws(
            e'\n', (record).previous_hash, (record).seq,
            to_char((record).at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            (record).event, (record).ref, (record).digest, (record).key_id, (record).details::text
        ), 'UTF8')), 'hex') $$;
