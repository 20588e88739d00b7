-- {x, y} of s·B + k·A, B the base point: both scalars share the doublings (Straus). Numbers are reduced where they
-- are about to be multiplied again, and may be negative on the way.
create or replace function kiwi.ed25519_sum(s numeric, k numeric, point numeric[]) returns numeric[]
    language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    p constant numeric := 57896044618658097711785492504343953926634992332820282019728792003956564819949;
    base constant numeric[] := array[
        15112221349535400772501151409588531511454012693041857206046113283949847762202,
        46316835694926478169428394003475163141307993866256225615783033603165251855960
    ];
    multiples numeric[] := kiwi.ed25519_multiples(base) || kiwi.ed25519_multiples(point);
    digits_s int[] := kiwi.signed_digits(s);
    digits_k int[] := kiwi.signed_digits(k);
    digit int; at int;
    x numeric := 0; y numeric := 1; z numeric := 1; t numeric := 0;
    e numeric; f numeric; g numeric; h numeric;
begin
    for place in reverse 254 .. 1 loop
        f := x * x; h := y * y;
        e := 2 * x * y % p; g := (h - f) % p; h := (h + f) % p; f := (g - 2 * z * z) % p;
        x := e * f % p; y := -g * h % p; z := f * g % p;
        continue when digits_s[place] = 0 and digits_k[place] = 0;
        t := -e * h % p;
        for leg in 0 .. 1 loop
            digit := case leg when 0 then digits_s[place] else digits_k[place] end;
            continue when digit = 0;
            at := 32 * leg + 2 * abs(digit);
            if digit > 0 then
                e := (y - x) * multiples[at - 1]; f := (y + x) * multiples[at]; h := t * multiples[at + 1];
            else
                e := (y - x) * multiples[at]; f := (y + x) * multiples[at - 1]; h := -t * multiples[at + 1];
            end if;
            g := z * multiples[at + 2];
            x := (f - e) % p; y := (g + h) % p; z := (g - h) % p; t := (f + e) % p;
            e := x * z % p; h := x * t % p; z := z * y % p; y := y * t % p; x := e; t := h;
        end loop;
    end loop;
    f := kiwi.field_power(z);
    for squaring in 1 .. 3 loop
        f := f * f % p;
    end loop;
    f := (z * z % p) * z % p * f % p; -- 1/z: p - 2 is 8·(2^252 - 3) + 3
    return array[(x * f % p + p) % p, (y * f % p + p) % p];
end $$;
