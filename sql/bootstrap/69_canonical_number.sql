-- RFC 8785's form of a number: the shortest decimals that give the same double, written as ECMAScript writes them.
-- Refused are what no double holds, and whole numbers from 2^53 on, of which a double cannot tell neighbours.
create or replace function kiwi.canonical_number(value numeric) returns text
    language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp
    set extra_float_digits = 1
    as $$
declare
    whole constant boolean := value = trunc(value);
begin
    if whole and abs(value) < 9007199254740992 then
        return trim_scale(value)::text;
    end if;
    if whole and abs(value) < 1e21 then
        raise exception using
            errcode = 'numeric_value_out_of_range', message = format('%s is beyond the whole numbers of JSON', value);
    end if;
    if abs(value::float8) >= 1e-6 and abs(value::float8) < 1e21 then
        return trim_scale(value::float8::text::numeric)::text;
    end if;
    return replace(replace(value::float8::text, 'e-0', 'e-'), 'e+0', 'e+');
end $$;
