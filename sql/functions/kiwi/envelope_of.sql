-- A stored version as the DSSE envelope that was handed in.
create or replace function kiwi.envelope_of(version kiwi.item_versions) returns jsonb
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.dsse_envelope((version).payload_type, (version).payload, (version).signer, (version).signature)
    $$;
