-- Takes passages out of the inverted index and its statistics. The caller holds the index lock where they are public.
create or replace function kiwi.remove_from_index(ids bigint[]) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    ids := array(select e.passage_id from kiwi_private.all_passages as e where e.passage_id = any (ids) and e.searchable);
    if cardinality(ids) > 0 then
        perform kiwi.hide_passages(ids);
        perform kiwi.change_statistics(ids, -1);
    end if;
end
$$;
