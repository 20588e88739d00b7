-- A signed payload as the DSSE envelope that was handed in.
create or replace function kiwi.dsse_envelope(payload_type text, payload bytea, signer text, signature bytea) returns jsonb
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select jsonb_build_object(
            'payloadType', payload_type,
            'payload', translate(encode(payload, 'base64'), e'\n', ''),
            'signatures', jsonb_build_array(jsonb_build_object(
                'keyid', signer, 'sig', translate(encode(signature, 'base64'), e'\n', '')
            ))
        )
    $$;
