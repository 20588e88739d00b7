-- Removes up to `most` documents of a collection. Returns how many it were; fewer than asked for: all are gone, and it
-- may hold vectors of another model.
create or replace function kiwi.clear_documents(collection text, most integer) returns integer
    language sql security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.delete_documents(
            clear_documents.collection,
            array(
                select v.sequence from kiwi_private.statements as v where v.owner_key = 'collection:' || clear_documents.collection
                limit greatest(most, 1)
            ),
            'clear-documents', '*'
        )
    $$;
