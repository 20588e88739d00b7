-- Digests of the versions that a checked filter lets through.
create or replace function kiwi.filtered_versions(filter jsonb) returns table (digest text)
    language plpgsql stable rows 1000
    set search_path = pg_catalog, pg_temp
    as $$
begin
    return query execute 'select v.digest from kiwi.item_versions as v where ' || kiwi.filter_condition(filter) using filter;
end
$$;
