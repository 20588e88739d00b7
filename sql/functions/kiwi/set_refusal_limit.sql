-- Sets how often a caller may be refused within a minute.
create or replace function kiwi.set_refusal_limit(per_minute integer) returns void
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if per_minute is null or per_minute not between 1 and 100000 then
        raise exception using errcode = 'KW013',
            message = 'the limit of refusals is a number from 1 to 100,000', hint = 'SELECT set_refusal_limit(60);';
    end if;
    insert into kiwi.settings (name, value) values ('refusals_per_minute', per_minute::text)
    on conflict (name) do update set value = excluded.value;
    perform kiwi.append_audit('refusal-limit', per_minute::text, '', '');
end $$;
