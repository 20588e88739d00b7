-- Whether a checked filter lets so few statements of a collection through (a fifth of all passages, by the average, and no
-- more than 20,000) that comparing all of them costs less than searching an index for them. Counts no further than that.
create or replace function kiwi.is_selective(collection integer, filter jsonb) returns boolean
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
declare
    most bigint;
    many boolean;
begin
    select ceil(least(20000, c.passages / 5) * c.items / greatest(c.passages, 1)::float8) into most
    from kiwi_private.collections as c where c.collection_id = collection;
    execute format(
        'select count(*) > $2 from (select from %s as v where v.owner_key = $3 and %s limit $2 + 1) as matching',
        kiwi.statements_table(collection), kiwi.filter_condition(filter)
    )
    into many using filter, most, kiwi.owner_of(collection);
    return not many;
end
$$;
