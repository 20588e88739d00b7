-- Notes when a document that goes was signed, whatever takes it away: see refuse_older.
create or replace function kiwi.mark_document() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    insert into kiwi.document_marks as m (workspace, path, signer, signed_at)
    values (old.workspace, old.path, old.signer, old.signed_at)
    on conflict (workspace, path, signer) do update set signed_at = excluded.signed_at
        where m.signed_at < excluded.signed_at;
    return null;
end
$$;
