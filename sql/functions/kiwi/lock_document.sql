-- One writer a document, to the end of the transaction, as lock_item; now and then two documents share a lock.
create or replace function kiwi.lock_document(owner_key text, path text) returns void
    language sql set search_path = pg_catalog, pg_temp as $$
        select kiwi.take_locks(array['document' || (hashtextextended(owner_key || '/' || path, 0) & 255)]) $$;
