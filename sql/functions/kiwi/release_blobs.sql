-- A blob goes with its last statement. The names of its files are gone by then, by their foreign key.
create or replace function kiwi.release_blobs() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    delete from kiwi_private.all_blobs as b
    where b.holder = case old.owner_key when '' then 0 else old.sequence end
        and b.sha256 in (
            select f.entry #>> '{digest,sha256}' from jsonb_array_elements(kiwi.payload_json(old.payload) -> 'subject') as f (entry)
        )
        and not exists (
            select from kiwi_private.all_statement_files as f where f.holder = b.holder and f.sha256 = b.sha256
        );
    return null;
end
$$;
