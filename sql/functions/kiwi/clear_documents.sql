-- Removes up to `most` documents of a collection. Returns how many it were; fewer than asked for: all are gone, and it
-- may hold vectors of another model.
create or replace function kiwi.clear_documents(collection text, most integer) returns integer
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
begin
    -- Waits for those who are putting documents, and lets go at once: held on, the row would be waited for by others
    -- while this function waits for the audit.
    begin
        perform from kiwi_private.collections as c where c.owner_key = 'collection:' || clear_documents.collection for update;
        raise sqlstate 'KW000';
    exception when sqlstate 'KW000' then
        null;
    end;
    return kiwi.delete_documents(
        clear_documents.collection,
        array(
            select v.sequence from kiwi_private.statements as v
            where v.owner_key = 'collection:' || clear_documents.collection
            limit greatest(most, 1)
        ),
        'clear-documents', '*'
    );
end
$$;
