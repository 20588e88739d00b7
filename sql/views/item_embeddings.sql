-- The seed's table, as a view of what is searchable.
create or replace view public.item_embeddings with (security_invoker = true) as
select
    md5(e.digest || v.digest || e.ordinal)::uuid as id, v.item_id, v.item_type, e.embedding, e.text as content, v.metadata,
    encode(v.signature, 'base64') as signature, v.received_at as validated_at, v.signed_at as created_at,
    v.received_at as updated_at
from kiwi.passages as e
join kiwi.statements as v on v.sequence = e.statement_id
where e.searchable;
comment on view public.item_embeddings is 'The searchable passages of public items with their vectors: search_embeddings() finds the nearest.';
