-- The caller's own private passages, of each private item those of the newest version that counts, unless the public
-- item of its name is newer; `matches` tells whether a checked filter lets them through. As in list_items, what hides
-- what comes before the filter. They stand outside of the inverted index, whose statistics everybody sees.
create or replace function kiwi.private_passages(collection integer, filter jsonb) returns table (
        passage_id bigint, item_type text, folded_id text, matches boolean
    )
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    mine text[] := kiwi.owner_keys();
begin
    if not exists (select from kiwi.item_versions as v where v.visibility = 'private' and v.owner_key = any (mine)) then
        return; -- nearly everybody: the query below takes a millisecond to plan
    end if;
    return query
        with newest as (
            select distinct on (v.item_type, v.folded_id, v.owner_key) v.digest, v.item_type, v.folded_id
            from kiwi.item_versions as v
            join kiwi.signers as s on s.key_id = v.signer
            where v.visibility = 'private' and v.owner_key = any (mine)
                and v.yanked_at is null and s.status <> 'compromised'
                and not exists (
                    select from kiwi.item_versions as p
                    join kiwi.signers as by on by.key_id = p.signer
                    where p.item_type = v.item_type and p.folded_id = v.folded_id and p.owner_key = ''
                        and p.yanked_at is null and by.status <> 'compromised' and p.version_key > v.version_key
                )
                and exists (
                    select from kiwi.item_embeddings as e where e.digest = v.digest and e.collection_id = collection
                )
            order by v.item_type, v.folded_id, v.owner_key, v.version_key desc, v.sequence desc
        )
        select e.passage_id, n.item_type, n.folded_id,
            filter = '{}' or n.digest in (select f.digest from kiwi.filtered_versions(filter) as f)
        from newest as n
        join kiwi.item_embeddings as e on e.digest = n.digest and e.collection_id = collection;
end
$$;
