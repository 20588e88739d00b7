-- Sorts under collation "C" as RFC 8785 sorts members, by UTF-16: what takes two units there comes before U+E000. So
-- it gets a prefix, U+D7FF, and a true U+D7FF stays before it by a suffix.
create or replace function kiwi.utf16_key(name text) returns text
    language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
begin
    if octet_length(name) = length(name) then
        return name;
    end if;
    return regexp_replace(
        replace(name, chr(55295), chr(55295) || chr(1)),
        '([' || chr(65536) || '-' || chr(1114111) || '])', chr(55295) || chr(92) || '1', 'g'
    );
end $$;
