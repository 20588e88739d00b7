-- Records a refusal and returns it as the answer: of what, as far as that is cheaply read, and why. What it says of the
-- item is only claimed, and of one that was to be private it says nothing.
create or replace function kiwi.record_rejection(envelope jsonb, wanted text, state text, problem text, advice text)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    payload bytea;
    claimed jsonb := '{}';
begin
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
    insert into kiwi_private.refusals as r (caller, minute, refused, unread)
    values (kiwi.caller_name(), date_trunc('minute', clock_timestamp()), 1, 0)
    on conflict (caller) do update set
        refused = case when r.minute = excluded.minute then r.refused + 1 else 1 end, minute = excluded.minute;
    perform set_config('response.status', '422', true);
    return jsonb_build_object('code', state, 'message', problem, 'hint', advice, 'details', null);
end
$$;
