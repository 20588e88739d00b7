-- Who may call what. Everything is taken first, so that this file alone tells.
alter default privileges for role kiwi_owner revoke execute on functions from public;
revoke all on schema kiwi_private from public, anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
revoke all on all tables in schema kiwi, kiwi_private from public, anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
revoke all on all sequences in schema kiwi, kiwi_private from public, anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
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
end $$;

-- Reading what is public: everybody.
grant usage on schema kiwi to anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
grant select (
        key_id, public_key, principal, item_patterns, item_types, valid_after, valid_before, status, status_changed_at,
        status_reason, enrolled_at
    ) on kiwi.signers to anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
grant select on kiwi.statements, kiwi.statement_files, kiwi.blobs, kiwi.passages, kiwi.settings, kiwi.alembic_version,
    public.item_embeddings
    to anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
grant select on kiwi.audit to service_role, kiwi_admin;
-- Functions that also know of what is private tell each caller of its own; of documents they tell nothing to anon.
grant execute on function
    public.search_hybrid, kiwi.search_hybrid, public.search_lexical, kiwi.search_lexical, public.search_embeddings,
    kiwi.search_embeddings, public.collection_statistics, kiwi.collection_statistics,
    public.similar_terms, kiwi.similar_terms, kiwi.with_type, public.get_item, kiwi.get_item,
    public.list_items, kiwi.list_items, public.item_status, kiwi.item_status, public.list_signers, public.registry_status,
    kiwi.registry_status, public.registry_checkpoint, kiwi.registry_checkpoint
    to anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
grant execute on function public.collection_status, kiwi.collection_status
    to authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;

-- Publishing: the signature is the authority, so whoever is logged in may hand something in.
grant execute on function public.publish_item, kiwi.publish_item
    to authenticated, service_role, kiwi_publisher, kiwi_admin;

-- Indexing: vectors are made on the trusted side alone. What waits may be private, so only the indexer sees it.
grant execute on function
    public.store_passages, kiwi.store_passages, public.pending_items, kiwi.pending_items, public.claim_item,
    kiwi.claim_item, public.requeue_item, kiwi.requeue_item, public.begin_collection, kiwi.begin_collection,
    public.finish_collection, kiwi.finish_collection, public.read_passages, kiwi.read_passages, public.indexed_items,
    kiwi.indexed_items, public.put_document, kiwi.put_document
    to kiwi_indexer;
grant execute on function
    public.delete_document, kiwi.delete_document, public.clear_documents, kiwi.clear_documents,
    public.drop_collection, kiwi.drop_collection
    to kiwi_indexer, kiwi_admin;
grant execute on function public.index_status, kiwi.index_status, kiwi.queued_items
    to kiwi_indexer, kiwi_admin, service_role;

-- Taking back: an admin anything, others what is theirs.
grant execute on function public.yank_item, kiwi.yank_item to authenticated, service_role, kiwi_publisher, kiwi_admin;

-- Administration.
grant execute on function
    public.enrol_signer, kiwi.enrol_signer, public.retire_signer,
    public.revoke_signer, kiwi.set_signer_status, public.set_audience, kiwi.set_audience, public.set_refusal_limit,
    kiwi.set_refusal_limit, public.verify_audit, kiwi.verify_audit
    to kiwi_admin;
grant execute on function public.audit_records to kiwi_admin, service_role;

-- The dashboard's views.
revoke all on public.registry_overview, public.pending_items, public.recent_rejections, public.signer_activity
    from public, anon, authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin;
grant select on public.registry_overview, public.pending_items, public.recent_rejections, public.signer_activity
    to service_role, kiwi_admin;
