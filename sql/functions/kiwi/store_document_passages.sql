-- Stores all passages of a document that has none yet, and the words in them; returns if they are those that were signed,
-- each once. Each is an object as store_passages takes it, and its `kind`.
create or replace function kiwi.store_document_passages(document kiwi.documents, passages jsonb) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    stored integer;
begin
    with handed as materialized (
        select p.*
        from jsonb_to_recordset(passages) as p (
            ordinal integer, text text, context text, heading text[], start_line integer, end_line integer, kind text,
            length integer, terms text[], frequencies integer[], embedding text
        )
    ),
    fresh as (
        insert into kiwi.document_passages (
            document_id, workspace_id, ordinal, text, context, heading, start_line, end_line, kind, length, embedding
        )
        select
            document.document_id, document.workspace_id, h.ordinal, h.text, h.context, h.heading, h.start_line, h.end_line,
            h.kind, h.length, h.embedding::extensions.vector
        from handed as h
        returning passage_id, ordinal, length
    ),
    words as materialized (
        select f.passage_id, f.length, u.term, u.frequency
        from handed as h
        join fresh as f on f.ordinal = h.ordinal
        cross join lateral unnest(h.terms, h.frequencies) as u (term, frequency)
    ),
    posted as (
        insert into kiwi.document_postings (workspace_id, term, passage_id, document_id, frequency, length)
        select document.workspace_id, w.term, w.passage_id, document.document_id, w.frequency, w.length from words as w
    ),
    named as (
        -- in one order, so that no two writers wait for each other's words
        insert into kiwi.document_terms (workspace_id, term)
        select distinct document.workspace_id, w.term collate "C" from words as w order by 2
        on conflict do nothing
    )
    select count(*) into stored from fresh;
    if stored <> document.passages then
        raise data_exception using message = format('%s were signed, and %s are there', document.passages, stored);
    end if;
end
$$;
