-- Whether a checked filter lets so few public versions through (a fifth of all passages, by the average, and no more than
-- 20,000) that comparing all of them costs less than searching an index for them. Counts no further than that.
create or replace function kiwi.lets_few_through(collection integer, filter jsonb) returns boolean
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
declare
    most bigint;
    many boolean;
begin
    select ceil(least(20000, c.passages / 5) * c.items / greatest(c.passages, 1)::float8) into most
    from kiwi.collections as c where c.collection_id = collection;
    execute 'select count(*) > $2 from (select from kiwi.item_versions as v where v.visibility = ''public'' and '
        || kiwi.filter_condition(filter) || ' limit $2 + 1) as matching'
        into many using filter, most;
    return not many;
end
$$;
