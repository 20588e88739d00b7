-- Takes a DSSE envelope of the wanted payload type apart: payload, up to so many bytes, and the first signature whose key
-- is enrolled here, an active one if there is one. `signer` is null when there is none; the key id is a hint, and the table verifies the
-- signature.
create or replace function kiwi.open_envelope(
    envelope jsonb, wanted_type text, most_bytes integer, out payload bytea, out signature bytea, out signer text, out claimed text
)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if jsonb_typeof(envelope) is distinct from 'object'
        or (select array_agg(key order by key collate "C") from jsonb_object_keys(envelope) as key) is distinct from
            array['payload', 'payloadType', 'signatures']
        or envelope ->> 'payloadType' is distinct from wanted_type
        or jsonb_typeof(envelope -> 'payload') <> 'string'
        or length(envelope ->> 'payload') > (most_bytes + 2) / 3 * 4 -- in base64
        or jsonb_typeof(envelope -> 'signatures') <> 'array'
        or jsonb_array_length(envelope -> 'signatures') not between 1 and 16
        or exists (
            select from jsonb_array_elements(envelope -> 'signatures') as entry
            where jsonb_typeof(entry) <> 'object' or jsonb_typeof(entry -> 'keyid') is distinct from 'string'
                or jsonb_typeof(entry -> 'sig') is distinct from 'string' or entry - 'keyid' - 'sig' <> '{}'
        )
    then
        raise exception using
            errcode = 'KW001',
            message = format('this is not a DSSE envelope of %s with 1 to 16 signatures', wanted_type),
            hint = 'sign the item first: kiwi sign PATH';
    end if;
    payload := kiwi.decode_base64(envelope ->> 'payload');
    claimed := envelope -> 'signatures' -> 0 ->> 'keyid';
    select s.key_id, kiwi.decode_base64(entry ->> 'sig') into signer, signature
    from jsonb_array_elements(envelope -> 'signatures') with ordinality as entries (entry, place)
    join kiwi.signers as s on s.key_id = entry ->> 'keyid'
    order by s.status <> 'active', place limit 1;
    if octet_length(signature) <> 64 then
        raise exception using
            errcode = 'KW001',
            message = 'an Ed25519 signature has 64 bytes, this one has not',
            hint = 'sign the item again: kiwi sign PATH';
    end if;
end
$$;
