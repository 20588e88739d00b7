-- Returns a filter over documents if every key and its type is known: a filter is never ignored.
create or replace function kiwi.check_document_filter(filter jsonb) returns jsonb
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    own constant text[] := array['file_type', 'service', 'domain', 'path'];
    wrong text;
begin
    perform kiwi.check_filter(case when jsonb_typeof(filter) = 'object' then filter - own else filter end);
    select string_agg(key, ', ') into wrong
    from jsonb_each(coalesce(filter, '{}'))
    where key = any (own) and jsonb_typeof(value) <> 'string'
        and (key <> 'file_type' or jsonb_typeof(value) <> 'array' or jsonb_path_exists(value, '$[*] ? (@.type() != "string")'));
    if wrong is not null then
        raise exception using
            errcode = 'KW009',
            message = format('these filters have the wrong type: %s', wrong),
            hint = 'filters are those of items, service, domain and path (texts), and file_type (a text, or a list of texts)';
    end if;
    return coalesce(filter, '{}');
end
$$;
