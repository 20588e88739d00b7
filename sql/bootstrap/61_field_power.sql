-- z^(2^252 - 3) mod 2^255 - 19: the exponentiation that both a square root and an inverse are made of.
create or replace function kiwi.field_power(z numeric) returns numeric
    language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    p constant numeric := 57896044618658097711785492504343953926634992332820282019728792003956564819949;
    five numeric := z;
    power numeric;
begin
    -- In binary the exponent is 250 ones, then 01: fifty times five ones.
    for bit in 1 .. 4 loop
        five := (five * five % p) * z % p;
    end loop;
    power := five;
    for ones in 1 .. 49 loop
        for squaring in 1 .. 5 loop
            power := power * power % p;
        end loop;
        power := power * five % p;
    end loop;
    for squaring in 1 .. 2 loop
        power := power * power % p;
    end loop;
    return power * z % p;
end $$;
