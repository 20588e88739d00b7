-- What BM25 needs to know: passages, their items, their total length in terms, and how many passages hold each given term.
create or replace function kiwi.collection_statistics(terms text[], model_fingerprint text, collection text) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if cardinality(terms) > 10000 then
        raise exception using
            errcode = 'KW013',
            message = 'up to 10,000 terms are counted at once',
            hint = 'ask a shorter question';
    end if;
    return (
        select coalesce(
            (
                select jsonb_build_object(
                    'passages', c.passages,
                    'items', c.items,
                    'total_length', c.total_length,
                    'document_frequency', coalesce(
                        (
                            select jsonb_object_agg(t.term, t.passages) from kiwi_private.all_term_statistics as t
                            where t.collection_id = c.collection_id and t.term = any (terms)
                        ),
                        '{}'
                    )
                )
                from kiwi_private.collections as c
                where c.collection_id = kiwi.collection_of(collection_statistics.collection, model_fingerprint)
            ),
            '{"passages": 0, "items": 0, "total_length": 0, "document_frequency": {}}'
        )
    );
end
$$;
