-- What the dashboard shows beside each table's name.
comment on schema kiwi is 'The registry of signed items. Not exposed: functions and views of schema public lead here.';
comment on table kiwi.settings is 'The registry''s name (audience) and the digest of the SQL it runs: set_audience(), kiwi registry migrate.';
comment on table kiwi.signers is 'Whose signatures count, for which items and since when: enrol_signer(), retire_signer(), revoke_signer().';
comment on table kiwi.item_versions is 'Every version that was ever taken, as it was signed. Rows are never changed; only publish_item() adds one.';
comment on table kiwi.collections is 'One embedding model''s vectors: those of two models never meet.';
comment on table kiwi.item_embeddings is 'Passages and their vectors, made by kiwi_indexer alone.';
comment on table kiwi.vector_indexes is 'How each model''s vectors are searched, as kiwi registry tune measured it.';
comment on table kiwi.postings is 'Word by word, the searchable passages: the lexical index.';
comment on table kiwi.term_statistics is 'In how many searchable passages a word stands, for BM25.';
comment on table kiwi.index_queue is 'What indexers lock while they work, and what went wrong before.';
comment on table kiwi.locks is 'What Kiwi''s functions lock: one row for the audit, one for the index, the others for items.';
comment on table kiwi.audit is 'Append-only log; each record holds the hash of the one before: verify_audit().';
comment on view kiwi.stored_versions is 'Item versions as their readers get them.';
