-- The minute for which refusals are counted now.
create or replace function kiwi.this_minute() returns timestamptz
    language sql stable set search_path = pg_catalog, pg_temp as $$ select date_trunc('minute', clock_timestamp()) $$;
