-- The number that bytes mean, least significant first.
create or replace function kiwi.little_endian(encoded bytea) returns numeric
    language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    number numeric := 0;
begin
    for place in reverse octet_length(encoded) - 1 .. 0 loop
        number := number * 256 + get_byte(encoded, place);
    end loop;
    return number;
end $$;
