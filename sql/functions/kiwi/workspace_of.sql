-- The number of a workspace to search with vectors of a model, any model where none is named; null where it has nothing.
create or replace function kiwi.workspace_of(workspace text, model_fingerprint text) returns integer
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    held kiwi.workspaces;
begin
    select * into held from kiwi.workspaces as w where w.name = workspace;
    if coalesce(model_fingerprint, '') not in ('', held.fingerprint)
        and exists (select from kiwi.documents as d where d.workspace_id = held.workspace_id)
    then
        raise exception using
            errcode = 'KW011',
            message = format('workspace %s holds vectors of %s, not of %s', workspace, held.fingerprint, model_fingerprint),
            hint = format('use the model %s, or index all of it anew: kiwi workspace index --rebuild', held.fingerprint);
    end if;
    return held.workspace_id;
end
$$;
