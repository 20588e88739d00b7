-- Each public item's newest version that counts and has no passages yet, as the indexer will take them.
create or replace view public.pending_items with (security_invoker = true) as
with newest as (
    select distinct on (v.item_type, v.folded_id)
        v.sequence, v.item_type, v.item_id, v.version, v.digest, v.signer, v.received_at
    from kiwi.item_versions as v
    where v.visibility = 'public' and v.yanked_at is null
    order by v.item_type, v.folded_id, v.version_key desc, v.sequence desc
)
select
    n.sequence, n.item_type, n.item_id, n.version, s.principal, n.received_at, now() - n.received_at as waits_since,
    coalesce(q.attempts, 0) as attempts, nullif(q.not_before, '-infinity') as next_attempt_at,
    coalesce(q.problem, '') as problem
from newest as n
join kiwi.signers as s on s.key_id = n.signer and s.status <> 'compromised'
left join kiwi.index_queue as q on q.digest = n.digest
cross join lateral kiwi.passage_count(n.digest) as c
where c.passages = 0
order by n.sequence;
comment on view public.pending_items is 'Published and not searchable yet, oldest first: kiwi registry index takes them.';
comment on column public.pending_items.attempts is 'How often an indexer''s gate refused it, and problem why the last time.';
