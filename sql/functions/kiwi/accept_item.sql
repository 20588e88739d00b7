-- Takes a signed item in with its files, or raises. Handing in the same again changes nothing and answers with the first
-- receipt. What is wanted: 'public', 'private', or null for public where it is new and else as it is. A private one may
-- be made public by its owner, who says so; never the other way. What somebody else keeps private is not looked at: the
-- same statement may stand there and here.
create or replace function kiwi.accept_item(envelope jsonb, files jsonb, wanted text) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    opened record;
    statement jsonb;
    contents bytea[];
    owner text;
    mine boolean;
    stored kiwi_private.all_statements;
    draft kiwi_private.all_statements;
    known boolean;
begin
    if wanted not in ('public', 'private') then
        raise exception using
            errcode = 'KW013', message = 'visibility is public or private', hint = 'SELECT publish_item(envelope, files, ''private'');';
    elsif pg_column_size(files) > 7500000 or jsonb_typeof(files) is distinct from 'object' -- 5 MiB in base64, and names
        or (select count(*) from (select from jsonb_object_keys(files) limit 201) as n) > 200
    then
        raise exception using
            errcode = 'KW001', message = 'files are an object of names and contents in base64, up to 200 and 5 MiB', hint = 'split the item';
    end if;
    opened := kiwi.open_envelope(envelope, 1 << 20);
    statement := kiwi.check_payload(opened.payload);
    if statement ->> 'predicateType' <> 'urn:kiwi:item:v1' then
        raise exception using
            errcode = 'KW001', message = 'this is a statement about a document, not about an item', hint = 'kiwi workspace index';
    end if;
    contents := kiwi.check_files(statement -> 'subject', files);
    select kiwi.owner_key_of(s.user_id, s.principal) into owner from kiwi.signers as s where s.key_id = opened.signer;
    mine := kiwi.is_mine(owner);
    perform kiwi.lock_item( -- a private one's is not the public lock: whoever publishes one of that name would wait
        array[case when wanted is distinct from 'private' then '' end, case when mine then owner end], statement -> 'predicate'
    );
    if mine then
        select * into draft from kiwi_private.statements as v
        where v.owner_key = owner and v.digest = encode(sha256(opened.payload), 'hex');
    end if;
    select * into stored from kiwi.statements as v where v.digest = encode(sha256(opened.payload), 'hex');
    known := found or draft.sequence is not null;
    if draft.sequence is not null and (stored.sequence is not null or wanted = 'public') then
        perform kiwi.lock_draft(draft);
    end if;
    if stored.sequence is null and (draft.sequence is null or wanted = 'public') then
        if wanted = 'private' and not mine then
            raise exception using errcode = 'KW016',
                message = 'private items of this signer are for their owner to hand in, which this login is not',
                hint = 'connect as the role named like the principal; with Supabase an admin names the user: SELECT enrol_signer(…, user_id => …);';
        end if;
        stored := kiwi.insert_item(opened.payload, opened.signature, opened.signer, case when wanted = 'private' then owner else '' end, statement -> 'subject', contents);
    end if;
    if draft.sequence is not null and stored.sequence is not null then
        perform kiwi.replace_draft(draft, stored);
    end if;
    if stored.sequence is null then
        stored := draft;
    end if;
    return jsonb_build_object(
        'sequence', stored.sequence, 'digest', stored.digest, 'received_at', stored.received_at,
        'already_published', known, 'visibility', case stored.owner_key when '' then 'public' else 'private' end,
        'made_public', draft.sequence is not null and stored.owner_key = '',
        'yanked_at', stored.yanked_at, 'audit_head', kiwi.audit_head()
    );
end $$;
