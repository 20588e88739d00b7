-- Of one term about `how_many` of the postings that add most to a BM25 score, with what each adds for a weight of 1, and
-- `rest`: the most that any other posting of the term adds; 0 where there is none. What a posting adds grows with its
-- frequency and falls with its passage's length, whatever average length the caller counts with: so an index in that
-- order serves every caller. Each frequency is read from its shortest passage on, up to the length where a posting adds
-- as little as the `how_many`-th of those with the lowest frequency, by far the most.
create or replace function kiwi.strongest_postings(
    collection integer, wanted text, average_length float8, how_many integer,
    out passage_ids bigint[], out impacts float8[], out rest float8
)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    lowest integer;
begin
    select p.frequency into lowest from kiwi_private.all_postings as p
    where p.collection_id = collection and p.term = wanted
    order by p.frequency
    limit 1;
    select lowest * 2.2::float8 / (lowest + 1.2::float8 * (0.25::float8 + 0.75::float8 * p.length / average_length))
    into rest
    from kiwi_private.all_postings as p
    where p.collection_id = collection and p.term = wanted and p.frequency = lowest
    order by p.length
    offset how_many - 1
    limit 1;
    with recursive counts as (
        select lowest as frequency
        union all
        select (
            select p.frequency from kiwi_private.all_postings as p
            where p.collection_id = collection and p.term = wanted and p.frequency > c.frequency
            order by p.frequency
            limit 1
        )
        from counts as c where c.frequency is not null
    ),
    found as (
        select
            s.passage_id, s.place,
            c.frequency * 2.2::float8
                / (c.frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * s.length / average_length)) as impact
        from counts as c
        cross join lateral (
            select p.passage_id, p.length, row_number() over (order by p.length, p.passage_id) as place
            from kiwi_private.all_postings as p
            where p.collection_id = collection and p.term = wanted and p.frequency = c.frequency
                -- The formula solved for the length, and a hair more.
                and p.length <= coalesce(
                    ((c.frequency * 2.2::float8 / rest - c.frequency) / 1.2::float8 - 0.25::float8)
                        / 0.75::float8 * average_length + 1e-6::float8,
                    'Infinity'
                )
            order by p.length, p.passage_id
            limit how_many
        ) as s
    )
    select array_agg(f.passage_id), array_agg(f.impact), greatest(rest, max(f.impact) filter (where f.place = how_many), 0)
    into passage_ids, impacts, rest
    from found as f;
end
$$;
