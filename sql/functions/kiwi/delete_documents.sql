-- Removes documents with their passages, with one audit record; returns how many were there.
create or replace function kiwi.delete_documents(collection text, ids bigint[], event text, path text) returns integer
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    going kiwi_private.statements[];
    old bigint[];
begin
    -- Before the audit: a revocation of the key hides the same passages, and holds this row first.
    perform from kiwi.signers as s
    where s.key_id in (select v.signer from kiwi_private.statements as v where v.sequence = any (ids))
    order by s.key_id
    for share;
    going := array(select v from kiwi_private.statements as v where v.sequence = any (ids) for update);
    if cardinality(going) > 0 then
        old := array(select e.passage_id from kiwi_private.passages as e where e.statement_id = any (ids) and e.searchable);
        perform kiwi.hide_passages(old);
        perform kiwi.append_audit(
            event, 'document:' || collection || '/' || path, case path when '*' then '' else going[1].digest end,
            case path when '*' then '' else going[1].signer end,
            case path when '*' then jsonb_build_object('documents', cardinality(going)) else '{}' end
        );
        perform kiwi.change_statistics(old, -1);
        delete from kiwi_private.statements as v where v.sequence = any (ids);
    end if;
    return cardinality(going);
end $$;
