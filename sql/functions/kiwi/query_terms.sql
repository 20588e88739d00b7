-- A query's distinct terms, made in SQL for callers that have no Kiwi at hand, as kiwi_rag.lexical makes them: words whole
-- and by their parts, lower-cased, leaving out the stop words, stemmed by Snowball. What can still differ are letters
-- that Postgres and Python do not lower-case, or count as letters, alike.
create or replace function kiwi.query_terms(query text) returns text[]
    language sql stable set search_path = pg_catalog, pg_temp as $$
        with words as (
            select found.m[1] as word, found.place
            from regexp_matches(left(query, 10000), '[[:word:]]+', 'g') with ordinality as found (m, place)
        ),
        parts as (
            select p.m[1] as part, w.place, p.number, count(*) over (partition by w.place) as parts
            from words as w
            cross join lateral regexp_matches(
                w.word,
                case when octet_length(w.word) = length(w.word) then '[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+' else '[^_]+' end,
                'g'
            ) with ordinality as p (m, number)
        ),
        pieces as (
            select w.word as piece, w.place, 0 as number from words as w
            union all
            select p.part, p.place, p.number from parts as p where p.parts > 1
        ),
        lowered as (
            select left(trim(both '_' from lower(p.piece)), 64) as piece, p.place, p.number from pieces as p
        ),
        stems as (
            select coalesce((ts_lexize('kiwi.english', l.piece))[1], l.piece) as term, l.place, l.number
            from lowered as l
            where l.piece <> '' and l.piece <> all (string_to_array(
                'a,an,and,are,as,at,be,been,but,by,can,could,did,do,does,for,from,had,has,have,how,i,if,in,into,is,it,its,me,'
                'my,no,not,of,on,or,our,should,so,some,than,that,the,their,them,then,there,these,they,this,those,to,was,we,'
                'were,what,when,where,which,while,who,why,will,with,would,you,your', ','
            ))
        )
        select coalesce(array_agg(s.term order by s.place, s.number), '{}')
        from (select distinct on (t.term) t.* from stems as t order by t.term, t.place, t.number) as s $$;
