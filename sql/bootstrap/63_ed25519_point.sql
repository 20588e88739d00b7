-- Decodes a point (RFC 8032 §5.1.3) to {x, y}; null where it is not on the curve, not canonical or of small order.
create or replace function kiwi.ed25519_point(encoded bytea) returns numeric[]
    language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    p constant numeric := 57896044618658097711785492504343953926634992332820282019728792003956564819949;
    d constant numeric := 37095705934669439343138083508754565189542113879843219016388785533085940283555;
    root_of_minus_one constant numeric :=
        19681161376707505956807079304988542015446066515923890162744021073123829784752;
    y numeric := kiwi.ed25519_y(encoded);
    u numeric := (y * y - 1) % p;
    v numeric := (d * (y * y % p) + 1) % p;
    v3 numeric := (v * v % p) * v % p;
    x numeric;
begin
    if y is null then
        return null;
    end if;
    x := (u * v3 % p) * kiwi.field_power((u * v3 % p) * (v3 * v % p) % p) % p;
    if (v * (x * x % p) + u) % p = 0 then -- x² is -u/v where the root of u/v takes a factor
        x := x * root_of_minus_one % p;
    end if;
    if (v * (x * x % p) - u) % p <> 0 then
        return null;
    end if;
    if x % 2 <> get_byte(encoded, 31) >> 7 then
        x := p - x;
    end if;
    return array[x, y];
end $$;
