-- Whether a predicate is one of an item that has these files.
create or replace function kiwi.is_item(predicate jsonb, names text[]) returns boolean
    language sql immutable
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.member_names(predicate) = array[
                'executables', 'item_id', 'item_type', 'main', 'metadata', 'registry', 'signed_at', 'version'
            ]
            and not jsonb_path_exists(predicate, '$.keyvalue() ? (@.key != "metadata" && @.key != "executables").value ? (@.type() != "string")')
            and kiwi.version_key(predicate ->> 'version') is not null and length(predicate ->> 'version') <= 256
            and predicate ->> 'item_type' in ('directive', 'script', 'knowledge', 'skill')
            and predicate ->> 'item_id' ~ '^[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*){0,7}$'
            and length(predicate ->> 'item_id') <= 128
            and predicate ->> 'main' = any (names) and (predicate ->> 'main') || '.sig' <> all (names)
            and jsonb_typeof(predicate -> 'executables') = 'array'
            and not jsonb_path_exists(predicate, 'strict $.executables[*] ? (@.type() != "string")')
            and (
                -- in order, each once, and each a file: then they are what is left of the names
                select coalesce(array_agg(e.name order by e.place), '{}') from jsonb_array_elements_text(
                    predicate -> 'executables'
                ) with ordinality as e (name, place)
            ) = array(
                select n from unnest(names) as n where predicate -> 'executables' ? n order by n collate "C"
            )
    $$;
