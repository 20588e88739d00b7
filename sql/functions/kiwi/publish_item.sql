-- The only way in. A refusal is an answer, {code, message, hint, details}, with an HTTP status for PostgREST: raised,
-- it would take its own audit record with it.
create or replace function kiwi.publish_item(envelope jsonb, visibility text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    refusal jsonb;
    state text;
    told text;
    advice text;
    broken text;
begin
    return kiwi.take_item(envelope, visibility);
exception when others then
    get stacked diagnostics state = returned_sqlstate, told = message_text, advice = pg_exception_hint,
        broken = constraint_name;
    if state = '23514' and broken = 'item_versions_signature' then
        state := 'KW015';
        told := 'the signature does not match the payload and the enrolled key';
        advice := 'sign the item again: kiwi sign PATH';
    elsif state not like 'KW%' then
        raise;
    end if;
    refusal := jsonb_build_object('code', state, 'message', told, 'hint', advice, 'details', null);
    perform kiwi.note_refusal(envelope, visibility, refusal);
    perform set_config('response.status', '422', true);
    return refusal;
end
$$;
