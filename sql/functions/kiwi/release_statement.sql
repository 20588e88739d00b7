-- Takes out of the index what goes with a statement, and notes when a document was signed: see refuse_older.
create or replace function kiwi.release_statement() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    perform kiwi.remove_from_index(array(
        select e.passage_id from kiwi_private.passages as e where e.statement_id = old.sequence and e.searchable
    ));
    if old.item_type = 'document' then
        insert into kiwi_private.removed_documents as m (owner_key, path, signer, signed_at)
        values (old.owner_key, old.item_id, old.signer, old.signed_at)
        on conflict (owner_key, path, signer) do update set signed_at = excluded.signed_at
            where m.signed_at < excluded.signed_at;
    end if;
    return old;
end
$$;
