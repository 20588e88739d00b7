-- A number below 2^253 as 254 digits that are 0 or odd and between -15 and 15, least significant first: of any five
-- neighbours at most one is not 0 (the width-5 non-adjacent form).
create or replace function kiwi.signed_digits(number numeric) returns int[]
    language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    digits int[] := array_fill(0, array[254]);
    place int := 1;
    digit int;
begin
    while number > 0 loop
        digit := number % 32;
        if digit % 2 = 0 then
            number := div(number, 2);
            place := place + 1;
        else
            digit := digit - case when digit > 16 then 32 else 0 end;
            digits[place] := digit;
            number := div(number - digit, 32);
            place := place + 5;
        end if;
    end loop;
    return digits;
end $$;
