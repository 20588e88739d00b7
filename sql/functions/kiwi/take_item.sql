-- Takes a signed statement in, or raises. Handing in the same statement again changes nothing and answers with the
-- first receipt. What is wanted: 'public', 'private', or null for public where it is new and else as it is. A private
-- one may be made public by its owner, who says so; never the other way.
create or replace function kiwi.take_item(envelope jsonb, wanted text) returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    opened record;
    statement jsonb;
    stored kiwi.item_versions;
    known boolean;
    was text;
begin
    if wanted not in ('public', 'private') then
        raise exception using
            errcode = 'KW013', message = 'visibility is public or private', hint = 'SELECT publish_item(envelope, ''private'');';
    end if;
    opened := kiwi.open_envelope(envelope, 'application/vnd.kiwi.item.v1+json', 1 << 20);
    if opened.signer is null then
        perform kiwi.check_signer(opened.claimed, null); -- raises: nobody enrolled signed this
    end if;
    statement := kiwi.check_statement(opened.payload);
    perform kiwi.lock_item(statement ->> 'item_type', statement ->> 'item_id');
    select * into stored from kiwi.item_versions as v where v.digest = encode(sha256(opened.payload), 'hex');
    known := found;
    was := stored.visibility;
    if not known then
        insert into kiwi.item_versions (payload_type, payload, signature, signer, visibility)
        values (envelope ->> 'payloadType', opened.payload, opened.signature, opened.signer, coalesce(wanted, 'public'))
        returning * into stored;
        if wanted = 'private' and not kiwi.is_mine(stored.owner_id, stored.owner_name) then
            raise exception using
                errcode = 'KW016',
                message = format('private items of %s are for their owner to hand in, which this login is not', stored.owner_name),
                hint = 'connect as the role named like the principal; with Supabase an admin names the user: SELECT enrol_signer(…, user_id => …);';
        end if;
        perform kiwi.note_publication('publish', stored);
    elsif stored.visibility = 'private' then
        stored := kiwi.open_to_all(stored, statement, wanted, opened.signature);
    end if;
    return jsonb_build_object(
        'sequence', stored.sequence, 'digest', stored.digest, 'received_at', stored.received_at,
        'known', known, 'visibility', stored.visibility, 'opened', known and was <> stored.visibility,
        'yanked_at', stored.yanked_at, 'audit_head', kiwi.audit_head()
    );
end
$$;
