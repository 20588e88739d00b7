create or replace function public.note_workspace(workspace text, name text, text text) returns void
    language sql volatile security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.note_workspace(note_workspace.workspace, note_workspace.name, note_workspace.text) $$;
comment on function public.note_workspace is 'Keeps a short text about a workspace, for the next indexer: for the indexer.';
