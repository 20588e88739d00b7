-- Decodes both base64 alphabets, as DSSE asks, but padded rightly and without what Postgres would overlook: what it skips
-- makes the result shorter. A pattern over the whole text would take ten times as long.
create or replace function kiwi.decode_base64(encoded text) returns bytea
    language plpgsql immutable strict
    set search_path = pg_catalog, pg_temp
    as $$
declare
    decoded bytea;
begin
    if strpos(encoded, '-') > 0 or strpos(encoded, '_') > 0 then
        encoded := translate(encoded, '-_', '+/');
    end if;
    decoded := decode(encoded, 'base64');
    if octet_length(encoded) % 4 <> 0
        or octet_length(decoded) <> octet_length(encoded) / 4 * 3 - length(right(encoded, 2)) + length(rtrim(right(encoded, 2), '='))
    then
        raise data_exception;
    end if;
    return decoded;
exception when data_exception then
    raise exception using
        errcode = 'KW001',
        message = 'the envelope holds base64 that does not decode',
        hint = 'sign the item again: kiwi sign PATH';
end
$$;
