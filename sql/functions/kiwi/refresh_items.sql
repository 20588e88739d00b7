-- Brings the search index up to date with what counts of the given public items: all of them in one step, since each
-- step leaves a dead copy of every statistic that it changes.
create or replace function kiwi.refresh_items(item_types text[], folded_ids text[]) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    chosen record;
begin
    perform kiwi.lock_index();
    select * into chosen from kiwi.choose_passages(item_types, folded_ids);
    perform kiwi.remove_from_index(chosen.to_hide);
    perform kiwi.add_to_index(chosen.to_show);
end
$$;
