-- Takes a signed statement in, or raises. Handing in the same statement again changes nothing and answers with the
-- first receipt; a private one may be made public by its owner, never the other way.
create or replace function kiwi.take_item(envelope jsonb, wanted text) returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    opened record;
    statement jsonb;
    stored kiwi.item_versions;
    known boolean;
begin
    if wanted is null or wanted not in ('public', 'private') then
        raise exception using
            errcode = 'KW013', message = 'visibility is public or private', hint = 'SELECT publish_item(envelope, ''private'');';
    end if;
    opened := kiwi.open_envelope(envelope);
    statement := kiwi.check_statement(opened.payload);
    if opened.signer is null then
        perform kiwi.check_signer(opened.claimed, statement); -- raises: nobody enrolled signed this
    end if;
    perform kiwi.lock_item(statement ->> 'item_type', statement ->> 'item_id');
    select * into stored from kiwi.item_versions as v where v.digest = encode(sha256(opened.payload), 'hex');
    known := found;
    if not known then
        insert into kiwi.item_versions (payload_type, payload, signature, signer, visibility, owner_id)
        values (envelope ->> 'payloadType', opened.payload, opened.signature, opened.signer, wanted, kiwi.user_id())
        returning * into stored;
        perform kiwi.note_publication('publish', stored);
    elsif stored.visibility = 'private' then
        stored := kiwi.open_to_all(stored, statement, wanted);
    end if;
    return jsonb_build_object(
        'sequence', stored.sequence, 'digest', stored.digest, 'received_at', stored.received_at,
        'visibility', stored.visibility, 'audit_head', kiwi.audit_head(), 'known', known
    );
end
$$;
