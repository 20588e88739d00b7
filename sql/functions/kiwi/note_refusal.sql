-- Writes a refusal down: of what, as far as that can be read, and why. What it says of the item is only claimed, and of
-- one that was to be private it says nothing.
create or replace function kiwi.note_refusal(envelope jsonb, wanted text, refusal jsonb) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    payload bytea;
    claimed jsonb := '{}';
begin
    begin
        payload := decode(translate(envelope ->> 'payload', '-_', '+/'), 'base64');
        if length(payload) <= 1048576 and wanted is distinct from 'private' then
            claimed := convert_from(payload, 'UTF8')::jsonb;
        end if;
    exception when data_exception or program_limit_exceeded or statement_too_complex then
        null;
    end;
    perform kiwi.append_audit(
        'refused',
        left(
            case
                when claimed ? 'path' then format('document:%s/%s', claimed ->> 'workspace', claimed ->> 'path')
                else coalesce(nullif(format('%s:%s@%s', claimed ->> 'item_type', claimed ->> 'item_id', claimed ->> 'version'), ':@'), '')
            end,
            200
        ),
        coalesce(encode(sha256(payload), 'hex'), ''),
        left(coalesce(envelope -> 'signatures' -> 0 ->> 'keyid', ''), 64),
        jsonb_build_object(
            'code', refusal ->> 'code',
            'message', case when wanted is distinct from 'private' then left(refusal ->> 'message', 500) else '' end
        )
    );
end
$$;
