create or replace view public.registry_overview with (security_invoker = true) as
select
    s.status ->> 'audience' as name,
    (s.status ->> 'items')::bigint as items,
    (s.status ->> 'versions')::bigint as versions,
    (i.status -> 'queue' ->> 'waiting')::bigint as waiting,
    (i.status -> 'queue' ->> 'refused')::bigint as refused_by_the_indexer,
    s.status ->> 'active_model' as model,
    (s.status ->> 'signers')::bigint as active_signers,
    (
        select coalesce(sum(coalesce((a.details ->> 'count')::bigint, 1)), 0)::bigint
        from kiwi.audit as a where a.event = 'refused' and a.at > now() - interval '1 day'
    ) as refused_today,
    (select max(a.at) from kiwi.audit as a where a.event = 'publish') as last_published_at,
    s.status ->> 'audit_head' as audit_head,
    s.status ->> 'revision' as revision,
    s.status ->> 'server' as server,
    s.status ->> 'pgvector' as pgvector
-- `offset 0`: each is asked once, not for every column
from (select kiwi.registry_status() offset 0) as s (status), (select kiwi.index_status() offset 0) as i (status);
comment on view public.registry_overview is 'The registry on one line: what it is called, holds, waits for and refused.';
comment on column public.registry_overview.name is 'What statements must be signed for (registry_name); null until set_audience() was called.';
comment on column public.registry_overview.waiting is 'Public items that are not searchable until an indexer ran.';
comment on column public.registry_overview.refused_today is 'Refused by publish_item within 24 hours: recent_rejections tells why.';
comment on column public.registry_overview.audit_head is 'Number and hash of the newest audit record: note it down to notice a rewritten log.';
