-- An item's files by name, in base64: those that are named, or all (null).
create or replace function kiwi.files_of(statement kiwi_private.all_statements, names text[]) returns jsonb
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select coalesce(jsonb_object_agg(f.path, kiwi.base64(b.content)), '{}')
        from kiwi_private.all_statement_files as f
        join kiwi_private.all_blobs as b on b.holder = f.holder and b.sha256 = f.sha256
        where f.statement_id = (statement).sequence and (names is null or f.path = any (names))
    $$;
