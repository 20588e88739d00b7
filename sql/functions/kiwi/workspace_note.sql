-- The text that was kept about a workspace under a name; empty where none was.
create or replace function kiwi.workspace_note(which_workspace text, which_name text) returns text
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select coalesce(
            (select n.text from kiwi.workspace_notes as n where n.workspace = which_workspace and n.name = which_name), ''
        )
    $$;
