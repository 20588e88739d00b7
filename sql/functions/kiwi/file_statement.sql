-- Lists a new statement's files, and has an item wait for its indexer. That each file of an item is there and has the
-- signed bytes, a foreign key and the CHECK of the blobs see to.
create or replace function kiwi.file_statement() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
begin
    insert into kiwi_private.all_statement_files (statement_id, path, sha256, holder)
    select new.sequence, f.entry ->> 'name', f.entry #>> '{digest,sha256}',
        case when new.item_type = 'document' then null when new.owner_key = '' then 0 else new.sequence end
    from jsonb_array_elements(kiwi.payload_json(new.payload) -> 'subject') as f (entry);
    if new.item_type <> 'document' then
        insert into kiwi_private.index_queue (statement_id) values (new.sequence);
    end if;
    return null;
end
$$;
