-- Returns a payload as JSON if its bytes are the canonical form of an item statement for this registry.
create or replace function kiwi.check_statement(payload bytea) returns jsonb
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    statement jsonb := case when kiwi.is_canonical(payload) then kiwi.payload_json(payload) end;
begin
    if jsonb_typeof(statement) is distinct from 'object'
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
        or length(statement ->> 'version') > 256
    then
        raise exception using
            errcode = 'KW001',
            message = 'the payload is not an item statement in canonical JSON',
            hint = 'sign the item again with this version of Kiwi: kiwi sign PATH';
    end if;
    perform kiwi.check_audience(statement);
    return statement;
end
$$;
