-- Whether a predicate is one of a document among these files.
create or replace function kiwi.is_document(predicate jsonb, names text[]) returns boolean
    language sql immutable
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.member_names(predicate) = array['collection', 'metadata', 'passages', 'path', 'registry', 'signed_at']
            and not jsonb_path_exists(predicate, '$.keyvalue() ? (@.key != "metadata" && @.key != "passages").value ? (@.type() != "string")')
            and not jsonb_path_exists(predicate, '$.metadata.keyvalue().value ? (@.type() != "string")')
            and jsonb_typeof(predicate -> 'passages') = 'array'
            and not jsonb_path_exists(predicate, 'strict $.passages[*] ? (@.type() != "string" || !(@ like_regex "^[0-9a-f]{64}$"))')
            and predicate ->> 'collection' ~ '^[a-z0-9][a-z0-9_-]{0,63}$' and predicate ->> 'collection' <> 'items'
            and predicate ->> 'path' = any (names)
    $$;
