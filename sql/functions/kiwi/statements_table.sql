-- The table in which the statements of a collection stand, for dynamic SQL: a query of one partition gets that one's plan.
create or replace function kiwi.statements_table(collection integer) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
    as $$ select case when collection > 0 then 'kiwi.statements' else 'kiwi_private.statements' end $$;
