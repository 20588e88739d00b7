-- The number of a workspace that is to hold vectors of this model, begun if it is new. Shared with other writers to the
-- end of the transaction, so that nobody clears it in between. An empty one may change its model.
create or replace function kiwi.begin_workspace(workspace text, model_fingerprint text) returns integer
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    held kiwi.workspaces;
begin
    if split_part(model_fingerprint, '/', -3) is distinct from '384' then
        raise exception using
            errcode = 'KW011',
            message = format('the registry keeps vectors of 384 dimensions, and %s makes others', model_fingerprint),
            hint = 'use a model of 384 dimensions';
    end if;
    loop
        select * into held from kiwi.workspaces as w where w.name = workspace for share;
        exit when held.fingerprint = model_fingerprint;
        if held.workspace_id is null then
            insert into kiwi.workspaces (name, fingerprint) values (workspace, model_fingerprint)
            on conflict (name) do nothing;
            continue;
        end if;
        select * into held from kiwi.workspaces as w where w.workspace_id = held.workspace_id for update;
        -- a statement of its own, which sees what those have done for whom the lock waited
        if exists (select from kiwi.documents as d where d.workspace_id = held.workspace_id) then
            raise exception using
                errcode = 'KW011',
                message = format('workspace %s holds vectors of %s, not of %s', workspace, held.fingerprint, model_fingerprint),
                hint = 'use its model, or index all of it anew: kiwi workspace index --rebuild';
        end if;
        update kiwi.workspaces as w set fingerprint = model_fingerprint where w.workspace_id = held.workspace_id;
    end loop;
    return held.workspace_id;
end
$$;
