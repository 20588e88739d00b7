-- Item versions as their readers get them: the public ones, and the caller's own. The policies say so too; here it
-- also holds for a role that passes over them.
create or replace view kiwi.stored_versions with (security_invoker = true) as
select
    v.sequence, v.item_type, v.item_id, v.folded_id, v.version, v.version_key, v.digest, v.content_sha256, v.received_at,
    v.yanked_at, v.yank_reason, v.signer, s.principal, s.status as signer_status, c.passages,
    c.searchable or v.visibility = 'private' and v.yanked_at is null and c.passages > 0 as searchable,
    kiwi.envelope_of(v) as envelope, v.visibility
from kiwi.item_versions as v
join kiwi.signers as s on s.key_id = v.signer
cross join lateral kiwi.passage_count(v.digest) as c
where v.visibility = 'public' or kiwi.is_mine(v.owner_id, v.owner_name);
