create or replace view public.recent_rejections with (security_invoker = true) as
select
    a.seq, a.at, a.details ->> 'code' as code, a.details ->> 'message' as message, a.ref as claimed_ref, s.principal,
    a.key_id as claimed_key_id, a.digest, a.details ->> 'by' as by
from kiwi.audit as a
left join kiwi.signers as s on s.key_id = a.key_id
where a.event = 'refused'
order by a.seq desc
limit 1000;
comment on view public.recent_rejections is 'What publish_item refused, and why: the last thousand, newest first.';
comment on column public.recent_rejections.code is 'KW001 form, KW002 unknown key, KW003 retired or revoked, KW004 not allowed that item, KW005 future, KW006 and KW007 version, KW008 another registry, KW015 signature, KW019 too many refusals, KW020 files.';
comment on column public.recent_rejections.claimed_ref is 'What the refused statement called itself: nothing of it was verified.';
comment on column public.recent_rejections.claimed_key_id is 'The key it named; anybody can name any key.';
comment on column public.recent_rejections.principal is 'Whose key that is here; null for one that is not enrolled.';
