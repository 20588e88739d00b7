-- Makes an item's newest version that counts the searchable one.
create or replace function kiwi.refresh_item(which_type text, which_id text) returns void
    language sql
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.refresh_items(array[which_type], array[kiwi.fold_item_id(which_id)]) $$;
