-- Returns if an item may follow what stands under its owner's key: a private item is no obstacle to a public one of its
-- name, so that nobody learns of it by a refusal. The caller holds the item's lock.
create or replace function kiwi.check_version(predicate jsonb, which_owner text) returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    newest kiwi_private.all_statements;
    ref text := format('%s:%s@%s', predicate ->> 'item_type', predicate ->> 'item_id', predicate ->> 'version');
    folded text := kiwi.fold_item_id(predicate ->> 'item_id');
begin
    if exists (
        select from kiwi_private.all_statements as v
        where v.owner_key = which_owner and v.folded_id = folded and v.item_type = predicate ->> 'item_type'
            and v.version = predicate ->> 'version'
    ) then
        raise exception using
            errcode = 'KW006',
            message = format('%s is published already, with other bytes', ref),
            hint = 'raise the version, then sign and publish again';
    end if;
    select * into newest from kiwi_private.all_statements as v
    where v.owner_key = which_owner and v.folded_id = folded and v.item_type = predicate ->> 'item_type'
    order by v.version_key desc, v.sequence desc limit 1;
    if newest.version_key > kiwi.version_key(predicate ->> 'version') then
        raise exception using
            errcode = 'KW007',
            message = format('%s is below %s, the highest version seen', ref, newest.version),
            hint = 'raise the version, then sign and publish again';
    end if;
    if newest.item_id <> predicate ->> 'item_id' then
        raise exception using
            errcode = 'KW012',
            message = format('%s cannot be told from %s, which exists', predicate ->> 'item_id', newest.item_id),
            hint = 'ids that differ in ''-'' and ''_'' alone are the same id: use the existing one, or another name';
    end if;
end
$$;
