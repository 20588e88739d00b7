-- Puts a version's passages in the place of those that it had in a collection. The caller holds the index lock.
create or replace function kiwi.replace_passages(which_digest text, collection integer, passages jsonb) returns integer
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    stored integer;
begin
    perform kiwi.withdraw_passages(array(
        select passage_id from kiwi.item_embeddings where digest = which_digest and collection_id = collection
    ));
    delete from kiwi.item_embeddings where digest = which_digest and collection_id = collection;
    insert into kiwi.item_embeddings (
        digest, collection_id, ordinal, text, context, heading, start_line, end_line, length, terms, frequencies, embedding
    )
    select
        which_digest, collection, p.ordinal, p.text, p.context, p.heading, p.start_line, p.end_line, p.length, p.terms,
        p.frequencies, p.embedding::extensions.vector
    from jsonb_to_recordset(passages) as p (
        ordinal integer, text text, context text, heading text[], start_line integer, end_line integer, length integer,
        terms text[], frequencies integer[], embedding text
    );
    get diagnostics stored = row_count;
    if stored > 0 and not exists (
        select from kiwi.item_embeddings where digest = which_digest and collection_id = collection and ordinal = 0
    ) then
        raise data_exception using message = 'the first passage has the ordinal 0, and there is none'; -- items are counted by it
    end if;
    return stored;
exception when data_exception or integrity_constraint_violation then
    raise exception using
        errcode = 'KW017',
        message = format('the passages of %s are not usable: %s', left(which_digest, 16), sqlerrm),
        hint = 'split and embed the item again with this version of Kiwi: kiwi registry index';
end
$$;
