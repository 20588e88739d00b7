-- The `depth` best passages, and whether that is certain, by MaxScore (Turtle & Flood 1995): terms come rarest first, and
-- `to_beat` is a score that `depth` passages are known to reach. The first terms' lists are read whole, until all others
-- together are worth less than that: a passage without any of the first cannot be among the best. Of the other terms,
-- the common ones, only the contenders' own postings are looked up, and whoever cannot reach the mark any more drops out.
-- Not certain is the answer where that would cost too much: of the first lists, what is over 300,000 postings is left to
-- the looking up; of the contenders the best 20,000 so far go on, 5,000 under a filter.
create or replace function kiwi.maxscore_top_k(
    collection integer, terms text[], weights float8[], frequencies bigint[], average_length float8, depth integer,
    statements bigint[], to_beat float8
) returns table (passage_id bigint, score float8, exact boolean)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set work_mem = '64MB'
    as $$
declare
    most constant integer := case when statements is null then 20000 else 5000 end;
    ceilings float8[];
    rest float8;
    whole integer := 0;
    postings bigint := 0;
    certain boolean;
    ids bigint[];
    partials float8[];
begin
    select array_agg(t.weight * (select max(i) from unnest(s.impacts) as i) * (1 + 1e-9::float8) order by t.place)
    into ceilings
    from unnest(terms, weights) with ordinality as t (term, weight, place)
    cross join lateral kiwi.strongest_postings(collection, t.term, average_length, 1) as s;
    loop
        rest := (select coalesce(sum(c), 0) from unnest(ceilings[whole + 1:]) as c);
        exit when whole = cardinality(terms) or rest < to_beat or postings + frequencies[whole + 1] > 300000;
        whole := whole + 1;
        postings := postings + frequencies[whole];
    end loop;
    select array_agg(c.passage_id), array_agg(c.score), (rest = 0 or rest < to_beat) and count(*) <= most
    into ids, partials, certain
    from (
        select s.passage_id, s.score
        from (
            select * from kiwi.score_passages(collection, terms[:whole], weights[:whole], average_length) as s
            where s.score + rest >= to_beat
            order by s.score desc, s.passage_id
            limit case when statements is null then most + 1 end
        ) as s
        where statements is null
            or (
                select e.statement_id from kiwi_private.all_passages as e
                where e.collection_id = collection and e.passage_id = s.passage_id
            ) in (select unnest(statements))
        limit most + 1
    ) as c;
    for n in whole + 1 .. cardinality(terms) loop
        rest := (select coalesce(sum(c), 0) from unnest(ceilings[n + 1:]) as c);
        select array_agg(c.id), array_agg(c.score),
            greatest(to_beat, (array_agg(c.score order by c.score desc))[depth] * (1 - 1e-9::float8))
        into ids, partials, to_beat
        from (
            select c.id, c.partial + coalesce(
                weights[n] * p.frequency * 2.2::float8
                    / (p.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * p.length / average_length)), 0
            ) as score
            from unnest(ids, partials) as c (id, partial)
            left join lateral (
                select q.frequency, q.length from kiwi_private.all_postings as q
                where q.collection_id = collection and q.term = terms[n] and q.passage_id = c.id
                limit 1
            ) as p on true
        ) as c
        where c.score + rest >= to_beat;
    end loop;
    return query
        select c.id, c.score, certain from unnest(ids, partials) as c (id, score)
        order by c.score desc, c.id
        limit depth;
end
$$;
