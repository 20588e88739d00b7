-- The caller's own private passages of a model, of each private item those of the newest version that counts, unless the
-- public item of its name is newer; `matches` tells whether a checked filter lets them through. As in list_items, what
-- hides what comes before the filter. They stand outside of the inverted index, whose statistics everybody sees.
create or replace function kiwi.own_passages(model_fingerprint text, filter jsonb) returns table (
        collection_id integer, passage_id bigint, statement_id bigint, item_type text, folded_id text, matches boolean
    )
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    mine text[] := kiwi.owner_keys();
begin
    if not exists (select from kiwi_private.statements as v where v.owner_key = any (mine)) then
        return; -- nearly everybody: the query below takes a millisecond to plan
    end if;
    return query
        with newest as (
            select distinct on (v.item_type, v.folded_id, v.owner_key) v.sequence, v.item_type, v.folded_id, c.collection_id
            from kiwi_private.statements as v
            join kiwi_private.collections as c on c.owner_key = v.owner_key and c.fingerprint = model_fingerprint
            join kiwi.signers as s on s.key_id = v.signer
            where v.owner_key = any (mine) and v.yanked_at is null and s.status <> 'compromised'
                and not exists (
                    select from kiwi.statements as p
                    join kiwi.signers as by on by.key_id = p.signer
                    where p.owner_key = '' and p.item_type = v.item_type and p.folded_id = v.folded_id
                        and p.yanked_at is null and by.status <> 'compromised' and p.version_key > v.version_key
                )
                and kiwi.has_passages(v.sequence, model_fingerprint)
            order by v.item_type, v.folded_id, v.owner_key, v.version_key desc, v.sequence desc
        )
        select e.collection_id, e.passage_id, e.statement_id, n.item_type, n.folded_id,
            filter = '{}' or n.sequence in (select f.statement_id from kiwi.filtered_statements(mine, filter) as f)
        from newest as n
        join kiwi_private.passages as e on e.collection_id = n.collection_id and e.statement_id = n.sequence;
end
$$;
