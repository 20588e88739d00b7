-- Numbers of the statements under some keys that a checked filter lets through.
create or replace function kiwi.filtered_statements(owner_keys text[], filter jsonb) returns table (statement_id bigint)
    language plpgsql stable rows 1000
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if '' = any (owner_keys) then
        return query execute 'select v.sequence from kiwi.statements as v where ' || kiwi.filter_condition(filter)
            using filter;
    end if;
    return query execute 'select v.sequence from kiwi_private.statements as v where v.owner_key = any ($2) and '
        || kiwi.filter_condition(filter) using filter, owner_keys;
end
$$;
