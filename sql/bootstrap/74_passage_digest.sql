-- Hex SHA-256 of a passage: of its canonical JSON (see canonical_json), written out, since its members are always the
-- same seven. IMMUTABLE for a generated column.
create or replace function kiwi.passage_digest(
    text text, context text, heading text[], start_line integer, end_line integer, kind text, file text
) returns text
    language sql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.text_sha256(
            '{"context":' || to_json(context)::text || ',"end_line":' || end_line || ',"file":' || to_json(file)::text || ',"heading":['
            || coalesce((
                select string_agg(to_json(h.part)::text, ',' order by h.place)
                from unnest(heading) with ordinality as h (part, place)
            ), '')
            || '],"kind":' || to_json(kind)::text || ',"start_line":' || start_line || ',"text":' || to_json(text)::text || '}'
        )
    $$;
