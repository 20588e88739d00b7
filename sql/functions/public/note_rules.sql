create or replace function public.note_rules(workspace text, path text, content_sha256 text, rules text) returns boolean
    language sql volatile security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.note_rules(note_rules.workspace, note_rules.path, note_rules.content_sha256, note_rules.rules)
    $$;
comment on function public.note_rules is 'Notes that a document was judged by other rules and is as it was: for the indexer.';
