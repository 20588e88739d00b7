-- Whether an item pattern covers an id; '*' stands for any run of characters, '/' too, nothing else is special.
create or replace function kiwi.matches_pattern(pattern text, item_id text) returns boolean
    language sql immutable strict set search_path = pg_catalog, pg_temp as $$
        select item_id like replace(replace(replace(replace(pattern, '!', '!!'), '%', '!%'), '_', '!_'), '*', '%') escape '!' $$;
