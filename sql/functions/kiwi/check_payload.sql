-- Returns a payload as JSON if its bytes are the canonical form of an in-toto statement about an item or a document, for
-- this registry. kiwi_rag.signing.statement holds the same rules.
create or replace function kiwi.check_payload(payload bytea) returns jsonb
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    statement jsonb := case when kiwi.is_canonical(payload) then kiwi.payload_json(payload) end;
    predicate jsonb := statement -> 'predicate';
    audience text := (select value from kiwi.settings where name = 'audience');
    names text[];
begin
    -- each step relies on the form that the one before has found
    if kiwi.member_names(statement) = array['_type', 'predicate', 'predicateType', 'subject']
        and statement ->> '_type' = 'https://in-toto.io/Statement/v1'
        and jsonb_typeof(statement -> 'subject') = 'array' and jsonb_typeof(predicate -> 'metadata') = 'object'
        and kiwi.parse_time(predicate ->> 'signed_at') is not null
        and octet_length(kiwi.canonical_json(predicate -> 'metadata')) <= 65536
    then
        names := kiwi.subject_names(statement -> 'subject');
    end if;
    if names is null
        or (
            case statement ->> 'predicateType'
                when 'urn:kiwi:item:v1' then octet_length(payload) <= 1048576 and kiwi.is_item(predicate, names)
                when 'urn:kiwi:index:v1' then kiwi.is_document(predicate, names)
            end
        ) is not true
    then
        raise exception using
            errcode = 'KW001',
            message = 'the payload is not a statement about an item or a document in canonical JSON',
            hint = 'sign it again with this version of Kiwi: kiwi sign PATH';
    end if;
    if (predicate ->> 'registry') is distinct from audience then
        raise exception using
            errcode = 'KW008',
            message = format('signed for registry %L; this one is %L', predicate ->> 'registry', audience),
            hint = 'set registry_name to this registry''s name and sign again: kiwi sign PATH';
    end if;
    return statement;
end
$$;
