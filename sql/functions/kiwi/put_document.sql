-- The only way in for a document. A refusal is an answer, as publish_item's is, for the same reason.
create or replace function kiwi.put_document(
    envelope jsonb, model_fingerprint text, passages jsonb, rules text
) returns jsonb
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
    return kiwi.take_document(envelope, model_fingerprint, passages, coalesce(rules, ''));
exception when others then
    get stacked diagnostics state = returned_sqlstate, told = message_text, advice = pg_exception_hint,
        broken = constraint_name;
    if state = '23514' and broken = 'documents_signature' then
        state := 'KW015';
        told := 'the signature does not match the payload and the enrolled key';
        advice := 'index the file again: kiwi workspace index --file PATH';
    elsif state ~ '^2[23]' then -- what was handed in is of no use: a vector of other dimensions, a passage twice
        state := 'KW017';
        told := format('the passages are not usable: %s', told);
        advice := 'index the file again with this version of Kiwi: kiwi workspace index --file PATH';
    elsif state not like 'KW%' then
        raise;
    end if;
    refusal := jsonb_build_object('code', state, 'message', told, 'hint', advice, 'details', null);
    perform kiwi.note_refusal(envelope, null, refusal);
    perform set_config('response.status', '422', true);
    return refusal;
end
$$;
