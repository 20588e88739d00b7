-- DSSE's pre-authentication encoding: what is really signed (https://github.com/secure-systems-lab/dsse, protocol.md).
create or replace function kiwi.dsse_pae(payload_type text, payload bytea) returns bytea
    language sql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
        select convert_to(
            'DSSEv1 ' || octet_length(payload_type) || ' ' || payload_type || ' ' || octet_length(payload) || ' ', 'UTF8'
        ) || payload $$;
