-- The multiples 1, 3, … 15 of a point, four numbers each, in the form that adding them wants: y-x, y+x, 2dt, 2z
-- (Hisil, Wong, Carter, Dawson, "Twisted Edwards Curves Revisited", 2008, §3.1 to §3.3).
create or replace function kiwi.ed25519_multiples(point numeric[]) returns numeric[]
    language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    p constant numeric := 57896044618658097711785492504343953926634992332820282019728792003956564819949;
    d2 constant numeric := 16295367250680780974490674513165176452449235426866156013048779062215315747161;
    x numeric := point[1]; y numeric := point[2]; z numeric := 1; t numeric := point[1] * point[2] % p;
    e numeric := 2 * t;
    g numeric := (y * y - x * x) % p;
    f numeric := g - 2;
    h numeric := (-y * y - x * x) % p;
    -- twice the point
    less numeric := (g * h - e * f) % p; more numeric := (g * h + e * f) % p;
    t2 numeric := d2 * (e * h % p) % p; z2 numeric := 2 * f * g % p;
    multiples numeric[] := array[y - x, y + x, d2 * t % p, 2];
begin
    for multiple in 2 .. 8 loop
        g := z * z2; h := t * t2;
        e := (y - x) * less; f := (y + x) * more;
        x := (f - e) * (g - h) % p; z := (g - h) * (g + h) % p;
        y := (g + h) * (f + e) % p; t := (f - e) * (f + e) % p;
        multiples := multiples || array[y - x, y + x, d2 * t % p, 2 * z];
    end loop;
    return multiples;
end $$;
