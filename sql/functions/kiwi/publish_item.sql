-- The only way in. Handing in the same statement again changes nothing and answers with the first receipt.
create or replace function kiwi.publish_item(envelope jsonb) returns jsonb
    language plpgsql security definer
    set search_path = ''
    as $$
declare
    opened record;
    statement jsonb;
    stored kiwi.item_versions;
    known boolean;
begin
    opened := kiwi.open_envelope(envelope);
    statement := kiwi.check_statement(opened.payload);
    if opened.signer is null then
        perform kiwi.check_signer(opened.claimed, statement); -- raises: nobody enrolled signed this
    end if;
    perform kiwi.lock_item(statement ->> 'item_type', statement ->> 'item_id');
    select * into stored from kiwi.item_versions as v where v.digest = encode(sha256(opened.payload), 'hex');
    known := found;
    if not known then
        insert into kiwi.item_versions (payload_type, payload, signature, signer)
        values (envelope ->> 'payloadType', opened.payload, opened.signature, opened.signer)
        returning * into stored;
        perform kiwi.append_audit(
            'publish', format('%s:%s@%s', stored.item_type, stored.item_id, stored.version), stored.digest, stored.signer
        );
        perform pg_notify('kiwi_published', stored.digest);
    end if;
    return jsonb_build_object(
        'sequence', stored.sequence, 'digest', stored.digest, 'received_at', stored.received_at,
        'audit_head', kiwi.audit_head(), 'known', known
    );
end
$$;
