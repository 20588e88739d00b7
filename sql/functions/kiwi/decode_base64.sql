-- Decodes both base64 alphabets, as DSSE asks, and nothing that Postgres would overlook in them: white space.
create or replace function kiwi.decode_base64(encoded text) returns bytea
    language plpgsql immutable strict
    set search_path = ''
    as $$
begin
    if encoded ~ '[[:space:]]' then
        raise data_exception;
    end if;
    return decode(translate(encoded, '-_', '+/'), 'base64');
exception when data_exception then
    raise exception using
        errcode = 'KW001',
        message = 'the envelope holds base64 that does not decode',
        hint = 'sign the item again: kiwi sign PATH';
end
$$;
