-- The role that a statement came from, also inside a function that runs as its owner.
create or replace function kiwi.caller() returns name
    language sql stable set search_path = pg_catalog, pg_temp as $$ select coalesce(nullif(current_setting('role'), 'none'), session_user)::name $$;
