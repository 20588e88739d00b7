-- How many passages versions have, and whether they are searchable: facts that readers of a version may know.
create or replace function kiwi.passage_counts(digests text[]) returns table (
        digest text, passages bigint, searchable boolean
    )
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select e.digest, count(*), bool_or(e.searchable)
        from kiwi.item_embeddings as e
        join kiwi.item_versions as v on v.digest = e.digest
        where e.digest in (select unnest(digests))
            and (v.visibility = 'public' or kiwi.is_mine(v.owner_id, v.owner_name))
        group by e.digest
    $$;
