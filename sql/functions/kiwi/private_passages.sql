-- The caller's own private passages that a checked filter lets through: of each private item the newest version that
-- counts, unless the public item of its name is newer. They stand outside of the inverted index, whose statistics
-- everybody sees.
create or replace function kiwi.private_passages(collection integer, filter jsonb) returns table (passage_id bigint)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    return query
        with newest as (
            select distinct on (v.item_type, v.folded_id, v.owner_key) v.digest
            from kiwi.item_versions as v
            join kiwi.signers as s on s.key_id = v.signer
            where v.visibility = 'private' and kiwi.is_mine(v.owner_id, v.owner_name)
                and v.yanked_at is null and s.status <> 'compromised'
                and not exists (
                    select from kiwi.item_versions as p
                    where p.item_type = v.item_type and p.folded_id = v.folded_id and p.owner_key = ''
                        and p.yanked_at is null and p.version_key > v.version_key
                )
                and exists (
                    select from kiwi.item_embeddings as e where e.digest = v.digest and e.collection_id = collection
                )
            order by v.item_type, v.folded_id, v.owner_key, v.version_key desc, v.sequence desc
        )
        select e.passage_id
        from newest
        join kiwi.item_embeddings as e on e.digest = newest.digest and e.collection_id = collection
        where filter = '{}' or newest.digest in (select f.digest from kiwi.filtered_versions(filter) as f);
end
$$;
