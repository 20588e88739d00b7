-- The `depth` best passages for a question of very many terms, and whether that is certain: of the rarest terms, as many as
-- have 300,000 postings together, all postings are summed up, and the best 1,000 of that are scored by their own terms.
create or replace function kiwi.rarest_terms_top_k(
    collection integer, terms text[], weights float8[], frequencies bigint[], average_length float8, depth integer,
    statements bigint[]
) returns table (passage_id bigint, score float8, exact boolean)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set work_mem = '64MB'
    as $$
declare
    most constant integer := greatest(1000, depth);
    whole integer;
    contenders bigint[];
begin
    select count(*) into whole
    from (select sum(f) over (order by place) as postings from unnest(frequencies) with ordinality as t (f, place)) as t
    where t.postings <= 300000;
    contenders := array(
        select s.passage_id from kiwi.score_passages(collection, terms[:whole], weights[:whole], average_length) as s
        order by s.score desc, s.passage_id
        limit case when statements is null then most end
    );
    contenders := array(select kiwi.allowed_passages(collection, contenders, statements, most));
    return query
        select s.passage_id, s.score, whole = cardinality(terms)
        from kiwi.score_passages(collection, terms, weights, average_length, contenders) as s
        order by s.score desc, s.passage_id
        limit depth;
end
$$;
