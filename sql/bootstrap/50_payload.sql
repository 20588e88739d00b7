-- What generated columns are made of. IMMUTABLE because the bytes alone decide, in a UTF-8 database.
create or replace function kiwi.payload_json(payload bytea) returns jsonb
    language sql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
    as $$ select convert_from(payload, 'UTF8')::jsonb $$;

-- A text of a statement's predicate.
create or replace function kiwi.predicate_text(payload bytea, member text) returns text
    language sql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.payload_json(payload) -> 'predicate' ->> member $$;

-- 'document' of an index statement, whose predicate names no type.
create or replace function kiwi.statement_type(payload bytea) returns text
    language sql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
    as $$ select coalesce(kiwi.predicate_text(payload, 'item_type'), 'document') $$;

-- What a statement is about: the id of an item, the path of a document.
create or replace function kiwi.statement_id(payload bytea) returns text
    language sql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
    as $$ select coalesce(kiwi.predicate_text(payload, 'item_id'), kiwi.predicate_text(payload, 'path')) $$;

-- Hex SHA-256 of a text's UTF-8 bytes.
create or replace function kiwi.text_sha256(written text) returns text
    language sql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
    as $$ select encode(sha256(convert_to(written, 'UTF8')), 'hex') $$;

-- Base64 without the line breaks that Postgres puts in.
create or replace function kiwi.base64(content bytea) returns text
    language sql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
    as $$ select translate(encode(content, 'base64'), e'\n', '') $$;

-- Two ids that differ in case, '-' or '_' alone are the same id.
create or replace function kiwi.fold_item_id(item_id text) returns text
    language sql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
    as $$ select replace(lower(item_id collate "C"), '_', '-') $$;

-- The one form that signed_at takes, YYYY-MM-DDThh:mm:ssZ; null for any other, and for what is no date or time: 24:00
-- and a 60th second are not, though Postgres reads them.
create or replace function kiwi.parse_time(moment text) returns timestamptz
    language sql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
    as $$
        select case
            when moment ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3])(:[0-5][0-9]){2}Z$'
                and pg_input_is_valid(left(moment, 10), 'date')
            then (left(moment, 10) || ' ' || substr(moment, 12, 8))::timestamp at time zone 'UTC'
        end
    $$;

-- Sorts as SemVer 2.0.0 §11 orders versions, under collation "C"; null for what is not SemVer.
-- Numbers are padded, numeric identifiers come before others, a shorter list first, a release ('~') last.
create or replace function kiwi.version_key(version text) returns text
    language sql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
    as $$
        with parts as (
            select regexp_match(
                version,
                '^(0|[1-9][0-9]{0,18})[.](0|[1-9][0-9]{0,18})[.](0|[1-9][0-9]{0,18})'
                '(?:-((?:0|[1-9][0-9]{0,18}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)'
                '(?:[.](?:0|[1-9][0-9]{0,18}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?'
                '(?:[+][0-9a-zA-Z-]+(?:[.][0-9a-zA-Z-]+)*)?$'
            ) as m
        )
        select lpad(m[1], 20, '0') || '.' || lpad(m[2], 20, '0') || '.' || lpad(m[3], 20, '0') || '.' || coalesce(
            (
                select string_agg(
                    case when piece ~ '^[0-9]+$' then '0' || lpad(piece, 20, '0') else '1' || piece end, ' ' order by place
                )
                from string_to_table(m[4], '.') with ordinality as pieces (piece, place)
            ),
            '~'
        )
        from parts where m is not null
    $$;
