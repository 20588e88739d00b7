-- A path filter as a LIKE pattern with escape '!': '*' stands for any run of characters, '/' too, and '?' for one.
create or replace function kiwi.path_pattern(path text) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
    as $$
        select translate(
            replace(replace(replace(nullif(rtrim(path, '/'), ''), '!', '!!'), '%', '!%'), '_', '!_'), '*?', '%_'
        )
    $$;
