-- Takes a DSSE envelope apart and verifies it, what costs least first: its size, its form, the signature over the bytes
-- of the payload, which are not parsed here. Of several signatures the first whose key is enrolled counts, an active
-- key's before others'; the key id is a hint.
create or replace function kiwi.open_envelope(
    envelope jsonb, most_bytes integer, out payload bytea, out signature bytea, out signer text
)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    key bytea;
begin
    if pg_column_size(envelope) > most_bytes / 3 * 4 + 65536
        or kiwi.member_names(envelope) is distinct from array['payload', 'payloadType', 'signatures']
        or envelope ->> 'payloadType' is distinct from 'application/vnd.in-toto+json'
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
            message = format('this is not a DSSE envelope of an in-toto statement of up to %s MiB with 1 to 16 signatures', most_bytes >> 20),
            hint = 'sign the item first, with this version of Kiwi: kiwi sign PATH';
    end if;
    select s.key_id, s.public_key, kiwi.decode_base64(entry ->> 'sig') into signer, key, signature
    from jsonb_array_elements(envelope -> 'signatures') with ordinality as entries (entry, place)
    join kiwi.signers as s on s.key_id = entry ->> 'keyid'
    order by s.status <> 'active', place limit 1;
    if not found then
        raise exception using
            errcode = 'KW002',
            message = format('key %s… is not enrolled in this registry', left(envelope #>> '{signatures,0,keyid}', 16)),
            hint = 'an admin lets it publish: kiwi registry enrol PRINCIPAL, or SELECT enrol_signer(…);';
    end if;
    if octet_length(signature) <> 64 then
        raise exception using
            errcode = 'KW001',
            message = 'an Ed25519 signature has 64 bytes, this one has not',
            hint = 'sign the item again: kiwi sign PATH';
    end if;
    payload := kiwi.decode_base64(envelope ->> 'payload');
    if not kiwi.ed25519_verify(key, kiwi.dsse_pae(envelope ->> 'payloadType', payload), signature) then
        raise exception using
            errcode = 'KW015',
            message = 'the signature does not match the payload and the enrolled key',
            hint = 'sign it again: kiwi sign PATH';
    end if;
end
$$;
