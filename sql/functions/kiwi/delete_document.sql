-- Removes a document with its passages; returns whether it was there. A mark stays: see mark_document.
create or replace function kiwi.delete_document(workspace text, path text) returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    gone kiwi.documents;
begin
    perform kiwi.lock_document(delete_document.workspace, delete_document.path);
    delete from kiwi.documents as d
    using kiwi.workspaces as w
    where w.name = delete_document.workspace and d.workspace_id = w.workspace_id and d.path = delete_document.path
    returning d.* into gone;
    if gone.document_id is null then
        return false;
    end if;
    perform kiwi.append_audit(
        'delete-document', 'document:' || kiwi.document_name(gone.workspace, gone.path), gone.digest, gone.signer
    );
    return true;
end
$$;
