-- The answer to a call that is not read.
create or replace function kiwi.too_many_refusals() returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    perform set_config('response.status', '429', true);
    return jsonb_build_object(
        'code', 'KW019', 'message', 'too many calls of this login were refused', 'hint', 'try again in a minute', 'details', null
    );
end
$$;
