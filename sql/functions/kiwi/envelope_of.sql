-- A statement as the DSSE envelope that was handed in.
create or replace function kiwi.envelope_of(statement kiwi_private.all_statements) returns jsonb
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select jsonb_build_object(
            'payloadType', (statement).payload_type, 'payload', kiwi.base64((statement).payload),
            'signatures', jsonb_build_array(
                jsonb_build_object('keyid', (statement).signer, 'sig', kiwi.base64((statement).signature))
            )
        )
    $$;
