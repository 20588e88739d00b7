-- Keeps a short text about a workspace under a name.
create or replace function kiwi.note_workspace(which_workspace text, which_name text, what text) returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
    as $$
        insert into kiwi.workspace_notes (workspace, name, text) values (which_workspace, which_name, what)
        on conflict (workspace, name) do update set text = excluded.text
    $$;
