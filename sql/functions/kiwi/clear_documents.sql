-- Removes up to `most` documents of a workspace, and with the last the workspace itself, so that it may begin anew with
-- another model. Returns how many it were; fewer than asked for: all is gone but marks (see mark_document).
create or replace function kiwi.clear_documents(workspace text, most integer) returns integer
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    number integer;
    removed integer;
begin
    select w.workspace_id into number from kiwi.workspaces as w where w.name = clear_documents.workspace for update;
    delete from kiwi.documents as d where d.document_id in (
        select o.document_id from kiwi.documents as o where o.workspace_id = number limit greatest(most, 1)
    );
    get diagnostics removed = row_count;
    if removed < greatest(most, 1) then
        delete from kiwi.document_terms as t where t.workspace_id = number;
        delete from kiwi.workspaces as w where w.workspace_id = number;
    end if;
    if removed > 0 then
        perform kiwi.append_audit(
            'clear-documents', 'document:' || clear_documents.workspace || '/*', '', '', jsonb_build_object('documents', removed)
        );
    end if;
    return removed;
end
$$;
