-- The vocabulary's terms that share the beginning or the end of a given term and are about as long, the most frequent
-- first: among them the caller looks for what a slip of the finger may have meant (kiwi_rag.lexical). The vocabulary is
-- that of the searchable passages; terms of private items alone are not in it.
create or replace function kiwi.similar_terms(terms text[], model_fingerprint text, collection text) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    held constant integer := kiwi.collection_of(collection, model_fingerprint);
    most constant integer := 1000;
    last constant text := chr(1114111); -- behind every letter
begin
    if cardinality(terms) > 8 then
        raise exception using
            errcode = 'KW013',
            message = 'similar terms are looked up for up to 8 at once',
            hint = 'ask a shorter question';
    end if;
    return (
        select coalesce(jsonb_object_agg(asked.term, found.candidates), '{}')
        from (
            select distinct u.term, left(u.term, (length(u.term) + 1) / 2) as beginning,
                reverse(right(u.term, length(u.term) / 2)) as ending
            from unnest(similar_terms.terms) as u (term)
            where length(u.term) between 4 and 64
        ) as asked
        cross join lateral (
            select coalesce(jsonb_agg(near.term order by near.passages desc, near.term), '[]') as candidates
            from (
                (
                    select s.term, s.passages from kiwi_private.all_term_statistics as s
                    where s.collection_id = held
                        and s.term >= asked.beginning collate "C" and s.term < (asked.beginning || last) collate "C"
                        and length(s.term) between length(asked.term) - 2 and length(asked.term) + 2
                    order by s.passages desc, s.term
                    limit most
                )
                union
                (
                    select s.term, s.passages from kiwi_private.all_term_statistics as s
                    where s.collection_id = held
                        and reverse(s.term) collate "C" >= asked.ending and reverse(s.term) collate "C" < asked.ending || last
                        and left(s.term, 1) = left(asked.term, 1)
                        and length(s.term) between length(asked.term) - 2 and length(asked.term) + 2
                    order by s.passages desc, s.term
                    limit most
                )
                union
                select s.term, s.passages from kiwi_private.all_term_statistics as s
                where s.collection_id = held and s.term = overlay(
                    asked.term placing reverse(substr(asked.term, (length(asked.term) + 1) / 2, 2))
                    from (length(asked.term) + 1) / 2 for 2
                )
            ) as near
        ) as found
    );
end
$$;
