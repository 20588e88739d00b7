-- Takes a document's postings along with it; its passages go by their foreign key.
create or replace function kiwi.forget_postings() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    delete from kiwi.document_postings as p where p.document_id = old.document_id;
    return null;
end
$$;
