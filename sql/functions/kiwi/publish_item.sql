-- The only way in. A refusal is an answer, {code, message, hint, details}, with an HTTP status for PostgREST: raised,
-- it would take its own audit record with it. Who is refused too often is refused unread.
create or replace function kiwi.publish_item(envelope jsonb, files jsonb, visibility text) returns jsonb
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    state text;
    problem text;
    advice text;
begin
    perform kiwi.check_isolation();
    if kiwi.is_refused_unread() then
        return kiwi.too_many_refusals();
    end if;
    return kiwi.accept_item(envelope, files, visibility);
exception when others then
    get stacked diagnostics state = returned_sqlstate, problem = message_text, advice = pg_exception_hint;
    if state not like 'KW%' then
        raise;
    end if;
    return kiwi.record_rejection(envelope, visibility, state, problem, advice);
end $$;
