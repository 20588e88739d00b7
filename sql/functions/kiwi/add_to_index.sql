-- Makes passages searchable. The caller holds the index lock.
create or replace function kiwi.add_to_index(ids bigint[]) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    with shown as (
        update kiwi_private.all_passages as e set searchable = true
        where e.passage_id = any (ids) and not e.searchable
        returning e.passage_id
    )
    select coalesce(array_agg(s.passage_id), '{}') into ids from shown as s;
    perform kiwi.insert_postings(ids);
    perform kiwi.change_statistics(ids, 1);
end
$$;
