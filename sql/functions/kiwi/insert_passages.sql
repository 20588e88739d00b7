-- Stores passages of a statement in a collection; returns their numbers, in order. Each is an object of ordinal, file,
-- kind, text, context, heading, start_line, end_line, length, terms, frequencies, embedding (pgvector's text form, or
-- null while it has none). The words of those that are searchable are for the caller to index.
create or replace function kiwi.insert_passages(
    statement kiwi_private.all_statements, held kiwi_private.collections, passages jsonb, shown boolean
) returns bigint[]
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    ids bigint[];
begin
    with stored as (
        insert into kiwi_private.all_passages (
            passage_id, collection_id, dimension, statement_id, ordinal, file, kind, text, context, heading, start_line, end_line,
            length, terms, frequencies, searchable, embedding
        )
        select
            case when held.collection_id > 0 then nextval('kiwi.passage_number') else nextval('kiwi_private.passage_number') end,
            held.collection_id, held.dimension, statement.sequence, p.ordinal, coalesce(p.file, ''), coalesce(p.kind, ''), p.text,
            p.context, p.heading, p.start_line, p.end_line, p.length, p.terms, p.frequencies, shown, p.embedding::extensions.vector
        from jsonb_to_recordset(passages) as p (
            ordinal integer, file text, kind text, text text, context text, heading text[], start_line integer,
            end_line integer, length integer, terms text[], frequencies integer[], embedding text
        )
        returning passage_id, ordinal
    )
    select coalesce(array_agg(s.passage_id order by s.ordinal), '{}') into ids from stored as s;
    if cardinality(ids) > 0 and not exists (
        select from kiwi_private.all_passages as e
        where e.collection_id = held.collection_id and e.statement_id = statement.sequence and e.ordinal = 0
    ) then
        raise data_exception using message = 'the first passage has the ordinal 0, and there is none'; -- items are counted by it
    end if;
    return ids;
end
$$;
