-- How often a caller may be refused within a minute before its further calls are refused unread.
create or replace function kiwi.refusal_limit() returns integer
    language sql stable set search_path = pg_catalog, pg_temp as $$
        select coalesce((select s.value::integer from kiwi.settings as s where s.name = 'refusals_per_minute'), 60) $$;
