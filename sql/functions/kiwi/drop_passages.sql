-- Removes passages, and what the index has of them. The caller holds the index lock where they are public.
create or replace function kiwi.drop_passages(ids bigint[]) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if cardinality(ids) > 0 then
        perform kiwi.remove_from_index(ids);
        delete from kiwi_private.all_passages as e where e.passage_id = any (ids);
    end if;
end
$$;
