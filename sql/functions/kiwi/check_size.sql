-- Returns if a search asks for no more than a search may: terms as many as 10,000 characters can hold, and a depth that
-- no client passes. What a question may cost is decided here, for anybody may ask.
create or replace function kiwi.check_size(terms integer, depth integer) returns void
    language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if terms > 5000 or depth is null or depth not between 1 and 2000 then
        raise exception using errcode = 'KW013',
            message = 'a search takes up to 5,000 terms and gives 1 to 2,000 passages',
            hint = 'ask a shorter question, or for fewer results';
    end if;
end $$;
