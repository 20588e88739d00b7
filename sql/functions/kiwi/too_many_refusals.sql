-- The answer to a call that is not read; its details are the seconds until the next minute.
create or replace function kiwi.too_many_refusals() returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    seconds text := ceil(60 - extract(second from clock_timestamp()))::text;
begin
    perform set_config('response.status', '429', true);
    return jsonb_build_object(
        'code', 'KW019', 'message', format('over %s calls of this login were refused within this minute', kiwi.refusal_limit()),
        'hint', format('try again in %s seconds', seconds), 'details', seconds
    );
end $$;
