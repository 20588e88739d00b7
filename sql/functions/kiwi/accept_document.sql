-- Takes a signed document in with all its passages, in the place of what its path had, or raises. The same statement
-- again changes nothing. What was signed before what is or was there is refused. Passages and words are written before
-- the locks that all writers share: those are held for the statistics alone.
create or replace function kiwi.accept_document(envelope jsonb, model_fingerprint text, passages jsonb) returns jsonb
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    opened record;
    predicate jsonb;
    owner text;
    path text;
    held kiwi_private.collections;
    stored kiwi_private.all_statements;
    before record;
    known boolean;
    old bigint[];
    fresh bigint[];
begin
    opened := kiwi.open_envelope(envelope, 4 << 20);
    predicate := kiwi.check_payload(opened.payload) -> 'predicate';
    if not predicate ? 'path' then
        raise exception using
            errcode = 'KW001', message = 'this is a statement about an item, not about a document', hint = 'kiwi publish PATH';
    end if;
    owner := 'collection:' || (predicate ->> 'collection');
    path := predicate ->> 'path';
    perform kiwi.lock_document(owner, path);
    held := kiwi.begin_documents(predicate ->> 'collection', model_fingerprint);
    select v.sequence, v.digest, s.status into before
    from kiwi_private.statements as v
    join kiwi.signers as s on s.key_id = v.signer
    where v.owner_key = owner and v.folded_id = path
    for share of s; -- a revocation of that key hides the same passages: one waits for the other here
    known := found and before.digest = encode(sha256(opened.payload), 'hex') and before.status <> 'compromised';
    if not known then
        perform kiwi.refuse_older(owner, path, kiwi.parse_time(predicate ->> 'signed_at'));
        -- the one that was there goes last, when the locks for it are held
        set constraints kiwi_private.statements_version, kiwi_private.statements_digest deferred;
        insert into kiwi_private.all_statements (sequence, payload_type, payload, signature, signer, owner_key)
        values (
            nextval('kiwi_private.statement_number'), envelope ->> 'payloadType', opened.payload, opened.signature, opened.signer, owner
        )
        returning * into stored;
        fresh := kiwi.insert_passages(stored, held, passages, true);
        if cardinality(fresh) <> stored.signed_passages then
            raise data_exception using message = format('%s were signed, and %s are there', stored.signed_passages, cardinality(fresh));
        end if;
        perform kiwi.insert_postings(fresh);
        old := array(select e.passage_id from kiwi_private.passages as e where e.statement_id = before.sequence and e.searchable);
        perform kiwi.hide_passages(old);
        perform kiwi.append_audit(
            'put-document', 'document:' || (predicate ->> 'collection') || '/' || path, stored.digest, stored.signer
        );
        perform kiwi.change_statistics(old, -1);
        perform kiwi.change_statistics(fresh, 1);
        delete from kiwi_private.statements as v where v.sequence = before.sequence;
    end if;
    return jsonb_build_object('digest', encode(sha256(opened.payload), 'hex'), 'already_published', known);
end $$;
