-- One writer an item: held to the end of the transaction.
create or replace function kiwi.lock_item(item_type text, item_id text) returns void
    language sql
    set search_path = pg_catalog, pg_temp
    as $$ select pg_advisory_xact_lock(hashtextextended(item_type || ':' || kiwi.fold_item_id(item_id), 7310595114003)) $$;
