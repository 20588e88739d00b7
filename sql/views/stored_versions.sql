-- Item versions as their readers get them; whom it shows what is decided by the policies below it.
create or replace view kiwi.stored_versions with (security_invoker = true) as
select
    v.sequence, v.item_type, v.item_id, v.folded_id, v.version, v.version_key, v.digest, v.content_sha256, v.received_at,
    v.yanked_at, v.yank_reason, v.signer, s.principal, s.status as signer_status, c.passages, c.searchable,
    kiwi.envelope_of(v) as envelope
from kiwi.item_versions as v
join kiwi.signers as s on s.key_id = v.signer
cross join lateral kiwi.passage_count(v.digest) as c;
