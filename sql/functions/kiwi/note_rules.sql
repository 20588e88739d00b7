-- Notes that a document of a file, as that is, was judged by other rules; returns whether it is there.
create or replace function kiwi.note_rules(workspace text, path text, content_sha256 text, rules text) returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
#variable_conflict use_column
begin
    update kiwi.documents as d set rules = note_rules.rules
    from kiwi.workspaces as w
    where w.name = note_rules.workspace and d.workspace_id = w.workspace_id and d.path = note_rules.path
        and d.content_sha256 = note_rules.content_sha256;
    return found;
end
$$;
