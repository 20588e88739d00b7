-- Decodes both base64 alphabets, as DSSE asks, but padded rightly and without what Postgres would overlook.
create or replace function kiwi.decode_base64(encoded text) returns bytea
    language plpgsql immutable strict
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if length(encoded) % 4 <> 0 or encoded !~ '^[A-Za-z0-9+/_-]*={0,2}$' then
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
