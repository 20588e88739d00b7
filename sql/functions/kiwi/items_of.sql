-- Numbers of the items that have a digest: a public one, and those of owners who keep the same statement private.
create or replace function kiwi.items_of(which_digest text) returns setof bigint
    language sql stable rows 1
    set search_path = pg_catalog, pg_temp
    as $$
        select v.sequence from kiwi.statements as v where v.digest = which_digest
        union all
        select v.sequence from kiwi_private.statements as v
        where v.digest = which_digest and v.item_type <> 'document'
    $$;
