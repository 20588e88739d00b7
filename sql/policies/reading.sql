-- Nobody but the owner's functions writes; these say who reads which row. A table without a policy shows nothing.
drop policy if exists readable on kiwi.item_versions;
create policy readable on kiwi.item_versions for select
    using (visibility = 'public' or kiwi.is_mine(owner_id, owner_name));
drop policy if exists readable on kiwi.signers;
create policy readable on kiwi.signers for select using (true);
drop policy if exists readable on kiwi.settings;
create policy readable on kiwi.settings for select using (true);
drop policy if exists readable on kiwi.audit;
create policy readable on kiwi.audit for select to kiwi_admin, service_role using (true);
drop policy if exists readable on kiwi.index_queue;
create policy readable on kiwi.index_queue for select to kiwi_indexer using (true);
drop policy if exists readable_of_public on kiwi.index_queue;
create policy readable_of_public on kiwi.index_queue for select to kiwi_admin, service_role
    using (exists (select from kiwi.item_versions as v where v.digest = index_queue.digest and v.visibility = 'public'));
-- Documents are a workspace's own files: not for whoever holds a publishable key.
drop policy if exists readable on kiwi.workspaces;
create policy readable on kiwi.workspaces for select
    to authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin using (true);
drop policy if exists readable on kiwi.documents;
create policy readable on kiwi.documents for select
    to authenticated, service_role, kiwi_publisher, kiwi_indexer, kiwi_admin using (true);
