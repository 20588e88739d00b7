-- Stores an item version's passages for one model, replacing what it had: for the indexer alone.
-- Each passage is an object of ordinal, text, context, heading, start_line, end_line, length, terms, frequencies,
-- embedding (pgvector's text form).
create or replace function kiwi.store_passages(which_digest text, model_fingerprint text, passages jsonb) returns integer
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    version kiwi.item_versions;
    collection integer;
    stored integer;
begin
    select * into version from kiwi.item_versions where digest = which_digest;
    if not found then
        raise exception using
            errcode = 'KW010',
            message = format('no published item has the digest %s', which_digest),
            hint = 'publish it first: kiwi publish REF';
    end if;
    perform kiwi.lock_index();
    perform kiwi.require_collection(model_fingerprint); -- begin_collection alone starts a second beside a first
    insert into kiwi.collections (fingerprint, ready_at) values (model_fingerprint, clock_timestamp())
    on conflict (fingerprint) do nothing;
    select collection_id into collection from kiwi.collections where fingerprint = model_fingerprint;
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
    update kiwi.index_queue set attempts = 0, problem = '', not_before = '-infinity'
    where digest = which_digest and attempts > 0;
    perform kiwi.refresh_item(version.item_type, version.folded_id);
    return stored;
exception when data_exception or integrity_constraint_violation or not_null_violation or check_violation then
    raise exception using
        errcode = 'KW011',
        message = format('the passages of %s are not usable: %s', left(which_digest, 16), sqlerrm),
        hint = 'vectors have 384 dimensions; use the registry''s own model: kiwi registry status';
end
$$;
