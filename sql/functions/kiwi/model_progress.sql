-- Each model's collection: active, building (beside the active one) or superseded; how many items it holds of those
-- that count, how many wait, and how many of these an indexer tried and could not index. Of public items alone, unless
-- all are asked for: how many private ones there are is nobody's business.
create or replace function kiwi.model_progress(private_too boolean default false) returns table (
        fingerprint text, state text, passages bigint, items bigint, waiting bigint, refused bigint
    )
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select c.fingerprint,
            case
                when c.ready_at is null then 'building'
                when c.collection_id = (kiwi.active_collection()).collection_id then 'active'
                else 'superseded'
            end,
            c.passages, counting.items - pending.waiting, pending.waiting, pending.refused
        from kiwi.collections as c
        cross join lateral (
            select count(*) as items from kiwi.waiting_versions('') as p
            join kiwi.item_versions as v on v.sequence = p.sequence
            where private_too or v.visibility = 'public'
        ) as counting
        cross join lateral (
            select count(*) as waiting, count(*) filter (where q.attempts > 0) as refused
            from kiwi.waiting_versions(c.fingerprint) as p
            join kiwi.item_versions as v on v.sequence = p.sequence
            left join kiwi.index_queue as q on q.digest = v.digest
            where private_too or v.visibility = 'public'
        ) as pending
        order by c.collection_id
    $$;
