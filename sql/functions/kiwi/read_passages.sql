-- An item's passages of one model, vectors included, to compare with what they should be.
create or replace function kiwi.read_passages(which_digest text, model_fingerprint text) returns table (
        ordinal integer, text text, context text, heading text[], start_line integer, end_line integer, length integer,
        terms text[], frequencies integer[], searchable boolean, embedding text, file text, kind text
    )
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select e.ordinal, e.text, e.context, e.heading, e.start_line, e.end_line, e.length, e.terms, e.frequencies,
            e.searchable, e.embedding::text, e.file, e.kind
        from (
            select i from kiwi.items_of(which_digest) as i where kiwi.has_passages(i, model_fingerprint) order by i limit 1
        ) as chosen (statement_id)
        join kiwi_private.all_passages as e on e.statement_id = chosen.statement_id
        join kiwi_private.collections as c on c.collection_id = e.collection_id and c.fingerprint = model_fingerprint
        order by e.ordinal
    $$;
