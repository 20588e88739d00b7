create or replace function public.workspace_note(workspace text, name text) returns text
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.workspace_note(workspace_note.workspace, workspace_note.name) $$;
comment on function public.workspace_note is 'The text that was kept about a workspace under a name; empty where none was.';
