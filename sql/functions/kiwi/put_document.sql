-- The only way in for a document. A refusal is an answer, as publish_item's is, for the same reason.
create or replace function kiwi.put_document(envelope jsonb, model_fingerprint text, passages jsonb) returns jsonb
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
    return kiwi.accept_document(envelope, model_fingerprint, passages);
exception when others then
    get stacked diagnostics state = returned_sqlstate, problem = message_text, advice = pg_exception_hint;
    if state ~ '^2[23]' then -- what was handed in is of no use: a vector of other dimensions, a passage twice
        state := 'KW017';
        problem := format('the passages are not usable: %s', problem);
        advice := 'index the file again with this version of Kiwi: kiwi workspace index --file PATH';
    elsif state not like 'KW%' then
        raise;
    end if;
    return kiwi.record_rejection(envelope, null, state, problem, advice);
end $$;
