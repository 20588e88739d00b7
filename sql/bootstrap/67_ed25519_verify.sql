-- Whether `signature` is the key's over `message` (RFC 8032 §5.1.7), strictly: A and R canonical and not of small
-- order, S below the group's order, no cofactor. As R is canonical, comparing its y and the sign of x is comparing
-- its bytes. Never an exception.
create or replace function kiwi.ed25519_verify(public_key bytea, message bytea, signature bytea) returns boolean
    language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    p constant numeric := 57896044618658097711785492504343953926634992332820282019728792003956564819949;
    l constant numeric := 7237005577332262213973186563042994240857116359379907606001950938285454250989;
    r constant bytea := substr(signature, 1, 32);
    y constant numeric := kiwi.ed25519_y(r);
    a numeric[];
    s numeric;
    k numeric;
    sum numeric[];
begin
    if octet_length(signature) <> 64 or y is null then
        return false;
    end if;
    a := kiwi.ed25519_point(public_key);
    s := kiwi.little_endian(substr(signature, 33));
    if a is null or s >= l then
        return false;
    end if;
    k := kiwi.little_endian(sha512(r || public_key || message)) % l;
    sum := kiwi.ed25519_sum(s, k, array[p - a[1], a[2]]); -- R should be s·B - k·A
    return sum[2] = y and sum[1] % 2 = get_byte(r, 31) >> 7;
end $$;
