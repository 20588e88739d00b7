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
    update kiwi.index_queue set attempts = 0, problem = '', not_before = '-infinity'
    where digest = which_digest and attempts > 0;
    -- The lock that the passages' foreign key takes, before the index's: see lock_index.
    select * into version from kiwi.item_versions where digest = which_digest for key share;
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
    stored := kiwi.replace_passages(which_digest, collection, passages);
    perform kiwi.refresh_item(version.item_type, version.folded_id);
    return stored;
end
$$;
