-- Refuses passages that are not, at their place, those that their document's signer signed: for every role, the owner and
-- replication included. Of a whole statement at once, since a document may have thousands.
create or replace function kiwi.admit_document_passages() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    wrong record;
begin
    -- EXCEPT hashes or sorts both sides, whatever the planner thinks of their sizes
    select u.ordinal into wrong
    from (
        select f.document_id, f.workspace_id, f.ordinal, f.digest from fresh as f
        except
        select d.document_id, d.workspace_id, s.place - 1, s.digest
        from kiwi.documents as d
        cross join lateral jsonb_array_elements_text(d.passage_digests) with ordinality as s (digest, place)
        where d.document_id in (select o.document_id from fresh as o)
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
