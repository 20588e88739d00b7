-- Who may call what. Everything is taken first, so that this file alone tells.
alter default privileges for role kiwi_owner revoke execute on functions from public;
revoke all on all tables in schema kiwi from public, anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
revoke all on all functions in schema kiwi from public, anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
do $$
declare
    ours regprocedure;
begin
    for ours in
        select oid::regprocedure from pg_catalog.pg_proc
        where pronamespace = 'public'::regnamespace and proowner = 'kiwi_owner'::regrole
    loop
        execute format(
            'revoke all on function %s from public, anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin',
            ours
        );
    end loop;
end
$$;

-- Reading: everybody. Row level security decides which rows.
grant usage on schema kiwi to anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
grant select (
        key_id, public_key, principal, item_patterns, item_types, valid_after, valid_before, status, status_changed_at,
        status_reason, enrolled_at
    ) on kiwi.signers to anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
grant select on kiwi.item_versions, kiwi.settings, kiwi.stored_versions, kiwi.alembic_version
    to anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
grant select on kiwi.audit to service_role, kiwi_admin;
grant execute on function
    public.search_hybrid, kiwi.search_hybrid, public.search_lexical, kiwi.search_lexical, public.search_embeddings,
    kiwi.search_embeddings, public.collection_statistics, kiwi.collection_statistics,
    public.similar_terms, kiwi.similar_terms, kiwi.with_type, public.get_item,
    public.list_items, public.list_versions, public.item_status, public.list_signers, public.registry_status,
    kiwi.registry_status, kiwi.fold_item_id, kiwi.check_filter, kiwi.filter_condition, kiwi.filtered_versions, kiwi.envelope_of, kiwi.dsse_envelope,
    kiwi.passage_count, kiwi.passage_counts, kiwi.audit_head, kiwi.caller, kiwi.is_mine, kiwi.user_id, public.registry_news, kiwi.registry_news
    to anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;

-- Reading documents, a workspace's own files: everybody but whoever holds a publishable key.
grant select on kiwi.workspaces, kiwi.documents to authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
grant execute on function
    public.search_documents, kiwi.search_documents, public.document_statistics, kiwi.document_statistics,
    public.similar_document_terms, kiwi.similar_document_terms, public.get_document, public.list_documents,
    kiwi.stored_documents, public.document_status, kiwi.document_status, public.workspace_note, kiwi.workspace_note
    to authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;

-- Publishing: the signature is the authority, so whoever is logged in may hand something in.
grant execute on function public.publish_item, kiwi.publish_item
    to authenticated, service_role, kiwi_publisher, kiwi_admin;

-- Indexing: vectors are made on the trusted side alone. What waits may be private, so only the indexer sees it.
grant execute on function
    public.store_passages, kiwi.store_passages, public.pending_items, kiwi.pending_versions, public.claim_item,
    kiwi.claim_item, public.set_back_item, kiwi.set_back_item, public.begin_collection, kiwi.begin_collection,
    public.finish_collection, kiwi.finish_collection, public.read_passages, kiwi.read_passages, public.indexed_items,
    kiwi.indexed_versions
    to kiwi_indexer;
grant execute on function
    public.put_document, kiwi.put_document, public.note_rules, kiwi.note_rules,
    public.note_workspace, kiwi.note_workspace
    to kiwi_indexer;
grant execute on function
    public.delete_document, kiwi.delete_document, public.clear_documents, kiwi.clear_documents
    to kiwi_indexer, kiwi_admin;
grant execute on function public.drop_collection, kiwi.drop_collection to kiwi_indexer, kiwi_admin;
grant select on kiwi.index_queue to kiwi_indexer, kiwi_admin, service_role;
grant execute on function public.index_status, kiwi.index_status, kiwi.queued_versions
    to kiwi_indexer, kiwi_admin, service_role;

-- Taking back: an admin anything, others what is theirs.
grant execute on function public.yank_item, kiwi.yank_item to authenticated, service_role, kiwi_publisher, kiwi_admin;

-- Administration.
grant execute on function
    public.enrol_signer, kiwi.enrol_signer, public.retire_signer,
    public.revoke_signer, kiwi.set_signer_status, public.set_audience, kiwi.set_audience, public.verify_audit,
    kiwi.verify_audit
    to kiwi_admin;
grant execute on function public.audit_records to kiwi_admin, service_role;

-- The dashboard's views.
revoke all on public.registry_overview, public.pending_items, public.recent_rejections, public.signer_activity
    from public, anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
grant select on public.registry_overview, public.pending_items, public.recent_rejections, public.signer_activity
    to service_role, kiwi_admin;
