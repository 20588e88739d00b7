create or replace function public.publish_item(
    envelope jsonb, files jsonb, visibility text default null
) returns jsonb
    language sql volatile security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.publish_item(publish_item.envelope, publish_item.files, publish_item.visibility) $$;
comment on function public.publish_item is 'The only way in: hands in a signed item (a DSSE envelope, and its files in base64 by name) and returns its receipt, or why it is refused.';
