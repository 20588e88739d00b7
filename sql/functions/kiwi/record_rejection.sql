-- Records a refusal and returns it as the answer: of what, as far as that is cheaply read, and why. What it says of the
-- item is only claimed, and of one that was to be private it says nothing. The caller's row counts it before the audit's
-- lock, so that a minute has no more records than the limit, however many calls came at once.
create or replace function kiwi.record_rejection(envelope jsonb, wanted text, state text, problem text, advice text)
    returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    allowed integer := kiwi.refusal_limit();
    excess integer;
    payload bytea;
    claimed jsonb := '{}';
begin
    insert into kiwi_private.refusals as r (caller, minute, refused, unread)
    values (kiwi.caller_name(), kiwi.this_minute(), 1, 0)
    on conflict (caller, minute) do update
        set refused = least(r.refused + 1, allowed), unread = r.unread + (r.refused >= allowed)::integer
    returning unread into excess;
    if excess > 0 then
        return kiwi.too_many_refusals();
    end if;
    if wanted is distinct from 'private' and pg_column_size(envelope) <= 65536 then
        begin
            payload := decode(translate(envelope ->> 'payload', '-_', '+/'), 'base64');
            claimed := convert_from(payload, 'UTF8')::jsonb -> 'predicate';
        exception when data_exception or program_limit_exceeded or statement_too_complex then
            null;
        end;
    end if;
    perform kiwi.append_audit(
        'refused',
        left(
            case
                when claimed ? 'path' then format('document:%s/%s', claimed ->> 'collection', claimed ->> 'path')
                else coalesce(nullif(format('%s:%s@%s', claimed ->> 'item_type', claimed ->> 'item_id', claimed ->> 'version'), ':@'), '')
            end,
            200
        ),
        coalesce(encode(sha256(payload), 'hex'), ''),
        case when payload is null then '' else left(coalesce(envelope -> 'signatures' -> 0 ->> 'keyid', ''), 64) end,
        jsonb_build_object(
            'code', state, 'message', case when wanted is distinct from 'private' then left(problem, 500) else '' end
        )
    );
    perform set_config('response.status', '422', true);
    return jsonb_build_object('code', state, 'message', problem, 'hint', advice, 'details', null);
end $$;
