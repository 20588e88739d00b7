-- Brings everything that a key signed up to date with that key's status, at once. Documents of a compromised key vanish.
create or replace function kiwi.refresh_signer(which_key text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    types text[];
    ids text[];
begin
    select array_agg(v.item_type), array_agg(v.folded_id) into types, ids
    from (select distinct v.item_type, v.folded_id from kiwi.statements as v where v.signer = which_key) as v;
    perform kiwi.refresh_items(types, ids);
    perform kiwi.remove_from_index(array(
        select e.passage_id from kiwi_private.statements as v
        join kiwi.signers as s on s.key_id = v.signer and s.status = 'compromised'
        join kiwi_private.passages as e on e.statement_id = v.sequence and e.searchable
        where v.signer = which_key
    ));
end
$$;
