-- As similar_terms, over the words of a workspace's documents.
create or replace function kiwi.similar_document_terms(workspace text, terms text[], model_fingerprint text) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    number constant integer := kiwi.workspace_of(workspace, model_fingerprint);
    among constant bigint[] := kiwi.chosen_documents(number, '{}');
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
            from unnest(similar_document_terms.terms) as u (term)
            where length(u.term) between 4 and 64
        ) as asked
        cross join lateral (
            select coalesce(jsonb_agg(counted.term order by counted.passages desc, counted.term), '[]') as candidates
            from (
                (
                    select t.term from kiwi.document_terms as t
                    where t.workspace_id = number
                        and t.term >= asked.beginning collate "C" and t.term < (asked.beginning || last) collate "C"
                        and length(t.term) between length(asked.term) - 2 and length(asked.term) + 2
                    order by t.term
                    limit most
                )
                union
                (
                    select t.term from kiwi.document_terms as t
                    where t.workspace_id = number
                        and reverse(t.term) collate "C" >= asked.ending and reverse(t.term) collate "C" < asked.ending || last
                        and left(t.term, 1) = left(asked.term, 1)
                        and length(t.term) between length(asked.term) - 2 and length(asked.term) + 2
                    order by t.term
                    limit most
                )
                union
                select t.term from kiwi.document_terms as t
                where t.workspace_id = number and t.term = overlay(
                    asked.term placing reverse(substr(asked.term, (length(asked.term) + 1) / 2, 2))
                    from (length(asked.term) + 1) / 2 for 2
                )
            ) as near
            cross join lateral kiwi.document_frequency(number, near.term, among) as counted
            where counted.passages > 0
        ) as found
    );
end
$$;
