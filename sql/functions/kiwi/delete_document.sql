-- Removes a document with its passages; returns whether it was there. When it was signed stays known: see refuse_older.
create or replace function kiwi.delete_document(collection text, path text) returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
begin
    perform kiwi.lock_document('collection:' || delete_document.collection, delete_document.path);
    return kiwi.delete_documents(
        delete_document.collection,
        array(
            select v.sequence from kiwi_private.statements as v
            where v.owner_key = 'collection:' || delete_document.collection and v.folded_id = delete_document.path
        ),
        'delete-document', delete_document.path
    ) > 0;
end
$$;
