-- What signers' patterns and the audit log call a document: its workspace, a slash, its path.
create or replace function kiwi.document_name(workspace text, path text) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
    as $$ select workspace || '/' || path $$;
