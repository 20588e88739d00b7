create or replace view public.signer_activity with (security_invoker = true) as
select
    s.principal, s.key_id, s.status, s.status_changed_at, s.status_reason, s.item_patterns, s.item_types,
    s.valid_after, s.valid_before, s.enrolled_at, count(distinct (v.item_type, v.folded_id)) filter (where v.digest is not null) as items,
    count(v.digest) as versions, count(v.yanked_at) as yanked, max(v.received_at) as last_published_at,
    (select count(*) from kiwi.audit as a where a.event = 'refused' and a.key_id = s.key_id) as refused
from kiwi.signers as s
left join kiwi.statements as v on v.signer = s.key_id
group by s.key_id
order by s.principal, s.enrolled_at;
comment on view public.signer_activity is 'Who may publish what, and what came of it: enrol_signer(), retire_signer() and revoke_signer() change it.';
comment on column public.signer_activity.refused is 'Refusals that named this key; anybody can name any key.';
