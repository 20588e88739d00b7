-- Each model's collection (or that of one model alone): active, building (beside the active one) or superseded; how many
-- items it holds of those that count, how many wait, and how many of these an indexer tried and could not index. Of
-- public items alone, unless all are asked for: how many private ones there are is nobody's business.
create or replace function kiwi.model_progress(private_too boolean default false, of_model text default null)
    returns table (fingerprint text, state text, passages bigint, items bigint, waiting bigint, refused bigint)
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        with counting as materialized (
            select count(*) as items from kiwi.waiting_versions('') as p
            join kiwi.item_versions as v on v.sequence = p.sequence
            where private_too or v.visibility = 'public'
        )
        select c.fingerprint,
            case
                when c.ready_at is null then 'building'
                when c.collection_id = (select a.collection_id from kiwi.active_collection() as a) then 'active'
                else 'superseded'
            end,
            c.passages, counting.items - pending.waiting, pending.waiting, pending.refused
        from kiwi.collections as c
        cross join counting
        cross join lateral (
            select count(*) as waiting, count(*) filter (where q.attempts > 0) as refused
            from kiwi.waiting_versions(c.fingerprint) as p
            join kiwi.item_versions as v on v.sequence = p.sequence
            left join kiwi.index_queue as q on q.digest = v.digest
            where private_too or v.visibility = 'public'
        ) as pending
        where of_model is null or c.fingerprint = of_model
        order by c.collection_id
    $$;
