-- A version's passages of one model, vectors included, to compare with what they should be.
create or replace function kiwi.read_passages(which_digest text, model_fingerprint text) returns table (
        ordinal integer, text text, context text, heading text[], start_line integer, end_line integer, length integer,
        terms text[], frequencies integer[], searchable boolean, embedding text
    )
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select e.ordinal, e.text, e.context, e.heading, e.start_line, e.end_line, e.length, e.terms, e.frequencies,
            e.searchable, e.embedding::text
        from kiwi.item_embeddings as e
        join kiwi.collections as c on c.collection_id = e.collection_id
        where e.digest = which_digest and c.fingerprint = model_fingerprint
        order by e.ordinal
    $$;
