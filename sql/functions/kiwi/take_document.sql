-- Takes a signed document in with all its passages, in the place of what its path had, or raises. The same statement
-- again changes nothing but the rules' name. What was signed before what is or was there is refused.
create or replace function kiwi.take_document(
    envelope jsonb, model_fingerprint text, passages jsonb, rules_name text
) returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    opened record;
    statement jsonb;
    name text;
    workspace_number integer;
    stored kiwi.documents;
    before record;
    known boolean;
begin
    opened := kiwi.open_envelope(envelope, 'application/vnd.kiwi.document.v1+json', 4 << 20);
    if opened.signer is null then
        perform kiwi.check_signer(opened.claimed, null); -- raises: nobody enrolled signed this
    end if;
    statement := kiwi.check_document(opened.payload);
    name := kiwi.document_name(statement ->> 'workspace', statement ->> 'path');
    perform kiwi.lock_document(statement ->> 'workspace', statement ->> 'path');
    workspace_number := kiwi.begin_workspace(statement ->> 'workspace', model_fingerprint);
    select d.document_id, d.digest, s.status into before
    from kiwi.documents as d
    join kiwi.signers as s on s.key_id = d.signer
    where d.workspace_id = workspace_number and d.path = statement ->> 'path';
    known := found and before.digest = encode(sha256(opened.payload), 'hex') and before.status <> 'compromised';
    if known then
        update kiwi.documents as d set rules = rules_name
        where d.document_id = before.document_id and d.rules <> rules_name;
    else
        perform kiwi.refuse_older(
            statement ->> 'workspace', statement ->> 'path', kiwi.parse_time(statement ->> 'signed_at')
        );
        delete from kiwi.documents as d where d.document_id = before.document_id;
        insert into kiwi.documents (workspace_id, payload_type, payload, signature, signer, rules, total_length)
        values (
            workspace_number, envelope ->> 'payloadType', opened.payload, opened.signature, opened.signer, rules_name,
            (select coalesce(sum(p.length), 0) from jsonb_to_recordset(passages) as p (length integer))
        )
        returning * into stored;
        perform kiwi.store_document_passages(stored, passages);
        perform kiwi.append_audit('put-document', 'document:' || name, stored.digest, stored.signer);
    end if;
    return jsonb_build_object('digest', encode(sha256(opened.payload), 'hex'), 'known', known);
end
$$;
