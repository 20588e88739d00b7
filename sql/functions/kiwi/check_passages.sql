-- Refuses passages of a document that are not, at their place, those that its signer signed: for every role, the owner
-- and replication included. Of a whole SQL statement at once, since a document may have thousands.
create or replace function kiwi.check_passages() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    wrong record;
begin
    -- EXCEPT hashes or sorts both sides, whatever the planner thinks of their sizes
    select u.ordinal into wrong
    from (
        select f.statement_id, c.owner_key, f.ordinal, f.digest
        from fresh as f
        join kiwi_private.collections as c on c.collection_id = f.collection_id and c.kind = 'documents'
        except
        select v.sequence, v.owner_key, s.place - 1, s.digest
        from kiwi_private.statements as v
        cross join lateral jsonb_array_elements_text(
            kiwi.payload_json(v.payload) -> 'predicate' -> 'passages'
        ) with ordinality as s (digest, place)
        where v.sequence in (select o.statement_id from fresh as o) and v.item_type = 'document'
    ) as u
    limit 1;
    if found then
        raise exception using
            errcode = 'KW017',
            message = format('passage %s is not what was signed of its document', wrong.ordinal),
            hint = 'index the file again with this version of Kiwi: kiwi workspace index --file PATH';
    end if;
    return null;
end
$$;
