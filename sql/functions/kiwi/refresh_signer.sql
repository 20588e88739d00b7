-- Brings every item that a key signed up to date with that key's status, at once.
create or replace function kiwi.refresh_signer(which_key text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    perform kiwi.refresh_item(item_type, folded_id)
    from (select distinct item_type, folded_id from kiwi.item_versions where signer = which_key) as items;
end
$$;
