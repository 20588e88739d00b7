-- Hex SHA-256 of a statement's list of files, in its canonical form: equal for equal files of equal names.
create or replace function kiwi.content_digest(payload bytea) returns text
    language sql immutable strict parallel restricted
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.text_sha256(kiwi.canonical_json(kiwi.payload_json(payload) -> 'subject')) $$;
