-- A filter with the seed's separate type argument folded in.
create or replace function kiwi.with_type(filter jsonb, filter_type text) returns jsonb
    language sql immutable set search_path = pg_catalog, pg_temp as $$
        select coalesce(filter, '{}')
            || case when filter_type is null then '{}' else jsonb_build_object('item_type', filter_type) end $$;
