-- Brings every item that a key signed up to date with that key's status, at once.
create or replace function kiwi.refresh_signer(which_key text) returns void
    language sql
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.refresh_items(array_agg(items.item_type), array_agg(items.folded_id))
        from (select distinct v.item_type, v.folded_id from kiwi.item_versions as v where v.signer = which_key) as items
    $$;
