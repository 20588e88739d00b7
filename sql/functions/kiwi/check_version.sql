-- Returns if a statement may follow what its owner's item had: a private item is no obstacle to a public one of its
-- name, so that nobody learns of it by a refusal. The caller holds the item's lock.
create or replace function kiwi.check_version(statement jsonb, which_owner text) returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    newest kiwi.item_versions;
    ref text := format('%s:%s@%s', statement ->> 'item_type', statement ->> 'item_id', statement ->> 'version');
begin
    if exists (
        select from kiwi.item_versions as v
        where v.item_type = statement ->> 'item_type'
            and v.folded_id = kiwi.fold_item_id(statement ->> 'item_id')
            and v.version = statement ->> 'version'
            and v.owner_key = which_owner
    ) then
        raise exception using
            errcode = 'KW006',
            message = format('%s is published already, with other bytes', ref),
            hint = 'raise the version, then sign and publish again';
    end if;
    select * into newest from kiwi.item_versions as v
    where v.item_type = statement ->> 'item_type' and v.folded_id = kiwi.fold_item_id(statement ->> 'item_id')
        and v.owner_key = which_owner
    order by v.version_key desc, v.sequence desc limit 1;
    if newest.version_key > kiwi.version_key(statement ->> 'version') then
        raise exception using
            errcode = 'KW007',
            message = format('%s is below %s, the highest version seen', ref, newest.version),
            hint = 'raise the version, then sign and publish again';
    end if;
    if newest.item_id <> statement ->> 'item_id' then
        raise exception using
            errcode = 'KW012',
            message = format('%s cannot be told from %s, which exists', statement ->> 'item_id', newest.item_id),
            hint = 'ids that differ in ''-'' and ''_'' alone are the same id: use the existing one, or another name';
    end if;
end
$$;
