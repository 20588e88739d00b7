-- Each item's newest version that counts but has no passages of this model yet, in order of arrival, up to `max_count`
-- (null: all) after a sequence number. An owner's private item is one beside the public one of its name. No model has an
-- empty name: everything that counts waits for it. `offset 0` has each row asked by itself, in order: a page stops when
-- it is full, where a join would go through all.
create or replace function kiwi.waiting_items(
    model_fingerprint text, after bigint default 0, max_count integer default null, private_too boolean default true
) returns table (statement_id bigint, attempts integer, not_before timestamptz, problem text)
    language sql stable rows 1000
    set search_path = pg_catalog, pg_temp
    set enable_sort = off -- the key's own order
    as $$
        select q.statement_id, q.attempts, q.not_before, q.problem
        from kiwi_private.index_queue as q
        cross join lateral (
            select v.* from kiwi_private.all_statements as v where v.sequence = q.statement_id offset 0
        ) as v
        join kiwi.signers as s on s.key_id = v.signer
        where q.statement_id > after and (private_too or q.statement_id < 1000000000000)
            and v.yanked_at is null and s.status <> 'compromised'
            and not kiwi.has_passages(v.sequence, model_fingerprint)
            and not exists (
                select from kiwi_private.all_statements as newer
                join kiwi.signers as by on by.key_id = newer.signer
                where newer.folded_id = v.folded_id and newer.item_type = v.item_type and newer.owner_key = v.owner_key
                    and (newer.version_key, newer.sequence) > (v.version_key, v.sequence)
                    and newer.yanked_at is null and by.status <> 'compromised'
                offset 0
            )
        order by q.statement_id
        limit max_count
    $$;
