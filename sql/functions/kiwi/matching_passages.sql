-- The words leg: the `depth` passages that score highest under the caller's weights, and whether that is certain.
-- What it costs is bounded, however common the terms are. A filter that lets few passages through: those are scored. Few
-- postings: all are summed up. Else the strongest postings of each term often prove the answer (threshold_top_k);
-- where they do not they give the score to beat, and if the search for what beats it (maxscore_top_k) has to stop
-- early the answer is not certain: that takes several terms, each in a large part of a large registry.
create or replace function kiwi.matching_passages(
    collection integer, terms text[], weights float8[], average_length float8, depth integer, filter jsonb
) returns table (passage_id bigint, score float8, exact boolean)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set work_mem = '64MB'
    as $$
declare
    statements bigint[] := case
        when filter <> '{}'
            then array(select f.statement_id from kiwi.filtered_statements(array[kiwi.owner_of(collection)], filter) as f)
    end;
    few bigint[];
    ids bigint[];
    scores float8[];
    certain boolean;
    frequencies bigint[];
    postings bigint;
begin
    select array_agg(k.term), array_agg(k.weight), array_agg(k.passages), coalesce(sum(k.passages), 0)
    into terms, weights, frequencies, postings
    from (
        select t.term, t.weight, s.passages
        from unnest(terms, weights) as t (term, weight)
        join kiwi_private.all_term_statistics as s on s.collection_id = collection and s.term = t.term
        order by s.passages, t.term
    ) as k;
    if statements is not null and postings > 0 then
        few := kiwi.few_passages(collection, statements, least(2000 + postings / cardinality(terms) / 4, 20000)::integer);
    end if;
    if few is not null then
        return query
            select s.passage_id, s.score, true
            from kiwi.score_passages(collection, terms, weights, average_length, few) as s
            order by s.score desc, s.passage_id
            limit depth;
    elsif postings <= 50000 then
        return query
            select l.passage_id, l.score, true
            from (
                select * from kiwi.score_passages(collection, terms, weights, average_length) as s
                order by s.score desc, s.passage_id
                limit case when statements is null then depth end
            ) as l
            where statements is null or (
                select e.statement_id from kiwi_private.all_passages as e
                where e.collection_id = collection and e.passage_id = l.passage_id
            ) in (select unnest(statements))
            limit depth;
    elsif cardinality(terms) > 50 then
        return query
            select * from kiwi.rarest_terms_top_k(collection, terms, weights, frequencies, average_length, depth, statements);
    else
        select array_agg(s.passage_id), array_agg(s.score), bool_and(s.exact) into ids, scores, certain
        from kiwi.threshold_top_k(
            collection, terms, weights, average_length, depth, statements, greatest(least(10000 / cardinality(terms), 2000), 2)
        ) as s;
        if certain then
            return query select s.passage_id, s.score, true from unnest(ids, scores) as s (passage_id, score);
        else
            return query
                with contending as (
                    select * from kiwi.maxscore_top_k(
                        collection, terms, weights, frequencies, average_length, depth, statements,
                        coalesce(scores[depth], 0) * (1 - 1e-9::float8)
                    )
                )
                select u.passage_id, max(u.score), coalesce((select bool_and(c.exact) from contending as c), false)
                from (
                    select c.passage_id, c.score from contending as c
                    union all
                    select s.passage_id, s.score from unnest(ids, scores) as s (passage_id, score)
                ) as u
                group by u.passage_id
                order by max(u.score) desc, u.passage_id
                limit depth;
        end if;
    end if;
end
$$;
