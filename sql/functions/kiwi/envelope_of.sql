-- A stored version as the DSSE envelope that was handed in.
create or replace function kiwi.envelope_of(version kiwi.item_versions) returns jsonb
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select jsonb_build_object(
            'payloadType', (version).payload_type,
            'payload', translate(encode((version).payload, 'base64'), e'\n', ''),
            'signatures', jsonb_build_array(jsonb_build_object(
                'keyid', (version).signer, 'sig', translate(encode((version).signature, 'base64'), e'\n', '')
            ))
        )
    $$;
