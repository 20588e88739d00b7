-- What the dashboard shows beside each name. A part of a table says what the whole does.
comment on schema kiwi is 'The registry of signed items. Not exposed: functions and views of schema public lead here.';
comment on schema kiwi_private is 'Private items and all documents. Only kiwi_owner has rights here: functions of schema kiwi read for whom it may concern.';
comment on table kiwi.settings is 'The registry''s name (audience) and the digest of the SQL it runs: set_audience(), kiwi registry migrate.';
comment on table kiwi.signers is 'Whose signatures count, for which items and since when: enrol_signer(), retire_signer(), revoke_signer().';
comment on table kiwi.audit is 'Append-only log; each record holds the hash of the one before: verify_audit().';
comment on table kiwi_private.locks is 'What Kiwi''s functions lock: one row for the audit, one for the index, the others for items and documents.';
comment on table kiwi_private.collections is 'Named sets that are searched with statistics and a model of their own: vectors of two models never meet.';
comment on table kiwi_private.index_queue is 'What indexers lock while they work, and what went wrong before.';
comment on table kiwi_private.vector_indexes is 'How each model''s vectors are searched, as kiwi registry tune measured it.';
comment on table kiwi_private.removed_documents is 'When documents that are gone were signed, so that nothing older takes their place.';
comment on table kiwi_private.refusals is 'How often a caller was refused within a minute, and how many further calls were refused unread.';
do $$
declare
    place text;
    described record;
begin
    for described in
        select * from (
            values
                ('statements', '', 'Every statement that was taken, as it was signed. Rows are never changed; publish_item() and put_document() alone add one.'),
                ('statement_files', '', 'The files that each statement lists.'),
                ('blobs', '', 'The contents of items'' files, by their digest.'),
                ('passages', '', 'Passages and their vectors, made by kiwi_indexer alone.'),
                ('postings', '', 'Word by word, the searchable passages: the lexical index.'),
                ('term_statistics', '', 'In how many searchable passages a word stands, for BM25.'),
                ('statements', 'sequence', 'Order of arrival.'),
                ('statements', 'payload_type', 'The DSSE payload type.'),
                ('statements', 'payload', 'The signed bytes: an in-toto statement as canonical JSON. What else tells of the item is generated from them.'),
                ('statements', 'signature', 'Ed25519 over DSSE''s pre-authentication encoding of the payload; checked by the table itself.'),
                ('statements', 'signer', 'Key id: the SHA-256 of the public key.'),
                ('statements', 'public_key', 'The key that verifies the signature, held here so that a restored row can be checked alone.'),
                ('statements', 'received_at', 'When the registry took it.'),
                ('statements', 'owner_key', 'Within what versions are counted: empty for public items, an owner''s own for private ones, a collection''s for documents.'),
                ('statements', 'yanked_at', 'When it was taken back; it is kept and gettable, but not found.'),
                ('statements', 'yank_reason', 'Why.'),
                ('statements', 'digest', 'SHA-256 of the payload: what names this version everywhere.'),
                ('statements', 'predicate_type', 'What is said: urn:kiwi:item:v1 by an author, urn:kiwi:index:v1 by an indexer.'),
                ('statements', 'registry', 'The registry that it was signed for.'),
                ('statements', 'collection', 'The collection of a document; items for items.'),
                ('statements', 'item_type', 'directive, script, knowledge, skill or document.'),
                ('statements', 'item_id', 'The item''s name, as it was signed; a document''s path.'),
                ('statements', 'folded_id', 'The name in which case, - and _ make no difference.'),
                ('statements', 'version', 'SemVer; empty for a document.'),
                ('statements', 'version_key', 'The version in a form that sorts.'),
                ('statements', 'metadata', 'Title, category, author, tags and the rest, as they were signed.'),
                ('statements', 'content_sha256', 'SHA-256 of the list of files with their digests.'),
                ('statements', 'signed_passages', 'How many passages were signed of a document.'),
                ('statements', 'signed_at', 'When its signer says to have signed it.')
        ) as d (name, part, text)
    loop
        foreach place in array array['kiwi.', 'kiwi_private.', 'kiwi_private.all_'] loop
            execute format(
                'comment on %s %s%s is %L', case described.part when '' then 'table' else 'column' end,
                place || described.name, case described.part when '' then '' else '.' || described.part end, described.text
            );
        end loop;
    end loop;
end $$;
