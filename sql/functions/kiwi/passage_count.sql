-- How many passages a version has, and whether they are searchable: facts that readers of the version may know.
create or replace function kiwi.passage_count(which_digest text, out passages bigint, out searchable boolean)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select count(*), coalesce(bool_or(e.searchable), false)
        from kiwi.item_embeddings as e
        join kiwi.item_versions as v on v.digest = e.digest
        where e.digest = which_digest and (v.visibility = 'public' or kiwi.is_mine(v.owner_id, v.owner_name))
    $$;
