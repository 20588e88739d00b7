-- What kiwi.queued_versions tells of public items, readably.
create or replace view public.pending_items with (security_invoker = true) as
select
    q.sequence, v.item_type, v.item_id, v.version, s.principal, v.received_at, now() - v.received_at as waits_since,
    q.attempts, nullif(q.not_before, '-infinity') as next_attempt_at, q.problem
from kiwi.queued_items() as q
join kiwi.statements as v on v.sequence = q.sequence
join kiwi.signers as s on s.key_id = v.signer
order by q.sequence;
comment on view public.pending_items is 'Published and not indexed for the active model yet, oldest first: kiwi registry index takes them.';
comment on column public.pending_items.attempts is 'How often an indexer''s gate refused it, and problem why the last time.';
