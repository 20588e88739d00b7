-- Returns a payload as JSON if it is an item statement for this registry, as strictly as SQL can tell.
create or replace function kiwi.check_statement(payload bytea) returns jsonb
    language plpgsql stable
    set search_path = ''
    as $$
declare
    written text;
    statement jsonb;
    audience text := (select value from kiwi.settings where name = 'audience');
begin
    begin
        written := convert_from(payload, 'UTF8');
        if written is json object with unique keys then
            statement := written::jsonb;
        end if;
    exception when data_exception or program_limit_exceeded or statement_too_complex then
        null;
    end;
    if statement is null
        or (select array_agg(key order by key collate "C") from jsonb_object_keys(statement) as key) is distinct from
            array['content', 'item_id', 'item_type', 'metadata', 'registry', 'signed_at', 'version']
        or exists (
            select from jsonb_each(statement) as member
            where jsonb_typeof(member.value) <> case member.key when 'metadata' then 'object' else 'string' end
        )
        or kiwi.parse_time(statement ->> 'signed_at') is null
        or kiwi.version_key(statement ->> 'version') is null
        or statement ->> 'item_type' not in ('directive', 'script', 'knowledge')
        or statement ->> 'item_id' !~ '^[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*){0,7}$'
        or length(statement ->> 'item_id') > 128
    then
        raise exception using
            errcode = 'KW001',
            message = 'the payload is not an item statement in strict JSON',
            hint = 'sign the item again with this version of Kiwi: kiwi sign PATH';
    end if;
    if (statement ->> 'registry') is distinct from audience then
        raise exception using
            errcode = 'KW008',
            message = format('signed for registry %L; this one is %L', statement ->> 'registry', audience),
            hint = 'set registry_name to this registry''s name and sign again: kiwi sign PATH';
    end if;
    return statement;
end
$$;
