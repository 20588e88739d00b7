-- The y of an encoded point, null where the encoding is not canonical or the point is of small order: what is wanted
-- of a public key and of R before anything is computed. The five y are those of the eight points whose order divides
-- the cofactor; each is the y of a point and of its negative.
create or replace function kiwi.ed25519_y(encoded bytea) returns numeric
    language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    p constant numeric := 57896044618658097711785492504343953926634992332820282019728792003956564819949;
    small_order constant numeric[] := array[
        0, 1, 57896044618658097711785492504343953926634992332820282019728792003956564819948,
        2707385501144840649318225287225658788936804267575313519463743609750303402022,
        55188659117513257062467267217118295137698188065244968500265048394206261417927
    ];
    y numeric;
begin
    if octet_length(encoded) <> 32 then
        return null;
    end if;
    y := kiwi.little_endian(set_byte(encoded, 31, get_byte(encoded, 31) & 127));
    if y >= p or y = any (small_order) then
        return null;
    end if;
    return y;
end $$;
