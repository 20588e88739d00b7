-- The `depth` best passages as far as each term's `share` strongest postings tell, with their full scores, and whether
-- none can be better: the threshold algorithm (Fagin, Lotem & Naor 2003) over lists in the order of impact. A passage that
-- was met in no list scores at most `unseen`, the sum of what each list would go on with; one that was met, that much and
-- what it gained there. The leaders' full scores give the score to beat. Where no unseen passage reaches it, whoever may
-- still do is scored in full, too, up to 1,000. `statements` are those that a filter lets through, null where there is none.
create or replace function kiwi.threshold_top_k(
    collection integer, terms text[], weights float8[], average_length float8, depth integer, statements bigint[], share integer
) returns table (passage_id bigint, score float8, exact boolean)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set work_mem = '64MB'
    as $$
declare
    rivals constant integer := 1000;
    unseen float8;
    to_beat float8;
    leaders bigint[];
    others bigint[];
begin
    with lists as materialized (
        select t.weight, s.passage_ids, s.impacts, s.rest
        from unnest(terms, weights) as t (term, weight)
        cross join lateral kiwi.strongest_postings(collection, t.term, average_length, share) as s
    ),
    bound as materialized (
        select sum(l.weight * l.rest) * (1 + 1e-9::float8) as score from lists as l
    ),
    met as materialized (
        select p.passage_id, sum(l.weight * p.impact) as partial, sum(l.weight * (p.impact - l.rest)) as gain
        from lists as l cross join lateral unnest(l.passage_ids, l.impacts) as p (passage_id, impact)
        group by p.passage_id
    ),
    first as materialized (
        select array(
            select m.passage_id from (
                select * from met order by met.partial desc, met.passage_id limit case when statements is null then depth end
            ) as m
            where statements is null or (
                select e.statement_id from kiwi_private.all_passages as e
                where e.collection_id = collection and e.passage_id = m.passage_id
            ) in (select unnest(statements))
            limit depth
        ) as ids
    ),
    mark as materialized (
        select case when count(*) < depth then 0 else min(s.score) * (1 - 1e-9::float8) end as score
        from first as f cross join lateral kiwi.score_passages(collection, terms, weights, average_length, f.ids) as s
    )
    select b.score, k.score, f.ids, array(
        select m.passage_id from (
            select met.passage_id from met
            where (b.score = 0 or b.score < k.score) and b.score + met.gain * (1 + 1e-9::float8) >= k.score
                and met.passage_id <> all (f.ids)
            order by met.partial desc, met.passage_id
            limit case when statements is null then rivals + 1 end
        ) as m
        where statements is null or (
                select e.statement_id from kiwi_private.all_passages as e
                where e.collection_id = collection and e.passage_id = m.passage_id
            ) in (select unnest(statements))
        limit rivals + 1
    )
    into unseen, to_beat, leaders, others
    from bound as b cross join mark as k cross join first as f;
    return query
        select s.passage_id, s.score, (unseen = 0 or unseen < to_beat) and cardinality(others) <= rivals
        from kiwi.score_passages(collection, terms, weights, average_length, leaders || others[:rivals]) as s
        order by s.score desc, s.passage_id
        limit depth;
end
$$;
