-- Returns a payload as JSON if its bytes are the canonical form of a document statement for this registry.
create or replace function kiwi.check_document(payload bytea) returns jsonb
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    statement jsonb := case when kiwi.is_canonical(payload) then kiwi.payload_json(payload) end;
begin
    if jsonb_typeof(statement) is distinct from 'object'
        or (select array_agg(key order by key collate "C") from jsonb_object_keys(statement) as key) is distinct from
            array['content_sha256', 'metadata', 'passages', 'path', 'registry', 'signed_at', 'workspace']
        or exists (
            select from jsonb_each(statement) as member
            where jsonb_typeof(member.value)
                <> case member.key when 'metadata' then 'object' when 'passages' then 'array' else 'string' end
        )
        or kiwi.parse_time(statement ->> 'signed_at') is null
        or statement ->> 'content_sha256' !~ '^[0-9a-f]{64}$'
        or exists (
            select from jsonb_array_elements(statement -> 'passages') as passage
            where jsonb_typeof(passage) <> 'string' or passage #>> '{}' !~ '^[0-9a-f]{64}$'
        )
        or exists (
            select from jsonb_each(statement -> 'metadata') as label where jsonb_typeof(label.value) <> 'string'
        )
        or statement ->> 'workspace' !~ '^[a-z0-9][a-z0-9_-]{0,63}$'
        -- below the workspace's root: no empty step, and none up or in place
        or statement ->> 'path' !~ '^[^/[:cntrl:]]+(/[^/[:cntrl:]]+)*$'
        or strpos(statement ->> 'path', chr(92)) > 0 -- a backslash
        or statement ->> 'path' ~ '(^|/)[.][.]?(/|$)'
        or length(statement ->> 'path') > 1024
    then
        raise exception using
            errcode = 'KW001',
            message = 'the payload is not a document statement in canonical JSON',
            hint = 'index the document again with this version of Kiwi: kiwi workspace index --file PATH';
    end if;
    perform kiwi.check_audience(statement);
    return statement;
end
$$;
