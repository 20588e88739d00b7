-- Writes a publication down and wakes the indexer.
create or replace function kiwi.note_publication(event text, stored kiwi.item_versions) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    perform kiwi.append_audit(
        event, kiwi.public_name_of(stored), stored.digest, stored.signer,
        jsonb_build_object('visibility', stored.visibility)
    );
    perform pg_notify('kiwi_published', ''); -- whoever listens learns no more than that there is something
end
$$;
