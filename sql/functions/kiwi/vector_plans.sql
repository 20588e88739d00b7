-- How each model's vectors of items are searched, and whether tuning is due: from 10,000 passages on an index is wanted,
-- and a new one whenever there are twice as many as it was made for. Where all was asked to be compared, nothing is ever
-- due; nor beyond 4,000 dimensions, which no index takes.
create or replace function kiwi.vector_plans() returns table (
        collection_id integer, fingerprint text, dimension integer, passages bigint, asked text, plan text, lists integer,
        effort integer, wide_effort integer, wanted_recall float8, recall float8, tuned_passages bigint,
        tuned_at timestamptz, due boolean
    )
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select c.collection_id, c.fingerprint, c.dimension, c.passages, coalesce(t.asked, 'auto'), coalesce(u.method, 'exact'),
            t.lists, t.effort, t.wide_effort, t.wanted_recall, t.recall, t.passages, t.tuned_at,
            c.passages >= 10000 and c.dimension <= 4000 and coalesce(t.asked, 'auto') <> 'exact'
                and (u.method is null or c.passages >= 2 * t.passages)
        from kiwi_private.collections as c
        left join kiwi_private.vector_indexes as t on t.collection_id = c.collection_id
        left join lateral kiwi.usable_index(c.collection_id) as u on true
        where c.owner_key = ''
        order by c.collection_id
    $$;
