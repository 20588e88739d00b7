-- Returns a filter over a collection if every key and its type is known: a filter is never ignored.
create or replace function kiwi.check_filter(filter jsonb, collection text) returns jsonb
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    wrong text;
begin
    if jsonb_typeof(filter) <> 'object' then
        raise exception using
            errcode = 'KW009',
            message = format('a filter is an object, not %s', jsonb_typeof(filter)),
            hint = '{"category": "operations"}; {} narrows nothing';
    end if;
    select string_agg(key, ', ') into wrong
    from jsonb_each(coalesce(filter, '{}'))
    where case
        when key in ('item_type', 'category', 'author', 'namespace', 'signer') then jsonb_typeof(value) <> 'string'
        when key = 'since' then jsonb_typeof(value) <> 'string' or not pg_input_is_valid(value #>> '{}', 'timestamptz')
        when key = 'tags' then jsonb_typeof(value) <> 'array' or jsonb_path_exists(value, '$[*] ? (@.type() != "string")')
        when collection = 'items' then true
        when key in ('service', 'domain', 'path') then jsonb_typeof(value) <> 'string'
        when key = 'file_type' then jsonb_typeof(value) <> 'string'
            and (jsonb_typeof(value) <> 'array' or jsonb_path_exists(value, '$[*] ? (@.type() != "string")'))
        else true
    end;
    if wrong is not null then
        raise exception using
            errcode = 'KW009',
            message = format('there is no such filter, or its value has the wrong type: %s', wrong),
            hint = 'filters are item_type, category, author, namespace, signer, since (texts) and tags (list of texts); '
                'of documents also service, domain, path (texts) and file_type (text, or list of texts)';
    end if;
    return coalesce(filter, '{}');
end
$$;
