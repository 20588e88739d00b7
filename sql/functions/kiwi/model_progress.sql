-- Each model's collection of items (or that of one model alone): active, building (beside the active one) or superseded;
-- how many items it holds of those that count, how many wait, and how many of these an indexer tried and could not
-- index. Of public items alone, unless all are asked for: how many private ones there are is nobody's business.
create or replace function kiwi.model_progress(private_too boolean default false, of_model text default null)
    returns table (fingerprint text, state text, passages bigint, items bigint, waiting bigint, refused bigint)
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        with counting as materialized (
            select count(*) as items from kiwi.waiting_items('', private_too => model_progress.private_too)
        )
        select c.fingerprint,
            case
                when c.ready_at is null then 'building'
                when c.collection_id = (kiwi.active_collection()).collection_id then 'active'
                else 'superseded'
            end,
            c.passages, counting.items - pending.waiting, pending.waiting, pending.refused
        from kiwi_private.collections as c
        cross join counting
        cross join lateral (
            select count(*) as waiting, count(*) filter (where p.attempts > 0) as refused
            from kiwi.waiting_items(c.fingerprint, private_too => model_progress.private_too) as p
        ) as pending
        where c.owner_key = '' and (of_model is null or c.fingerprint = of_model)
        order by c.collection_id
    $$;
