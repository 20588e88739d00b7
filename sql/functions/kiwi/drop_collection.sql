-- Removes a model's passages and vectors, never the active one's: up to `max_passages` of them, so that nobody waits
-- long for the index; the collection itself with the last. Returns how many it were; fewer than asked for: all is gone.
create or replace function kiwi.drop_collection(model_fingerprint text, max_passages integer) returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    dropped kiwi.collections;
    most integer := case when max_passages is not null then greatest(max_passages, 1) end;
    ids bigint[];
begin
    perform kiwi.lock_audit();
    perform kiwi.lock_index();
    select * into dropped from kiwi.collections where fingerprint = model_fingerprint;
    if dropped.collection_id is null or dropped.collection_id = (kiwi.active_collection()).collection_id then
        raise exception using
            errcode = 'KW013',
            message = format('%s is not a model whose vectors can be dropped', model_fingerprint),
            hint = 'the active model''s stay; see which others there are: kiwi registry status';
    end if;
    ids := array(
        select passage_id from kiwi.item_embeddings where collection_id = dropped.collection_id limit most
    );
    perform kiwi.withdraw_passages(ids);
    delete from kiwi.item_embeddings where passage_id in (select unnest(ids));
    if most is null or cardinality(ids) < most then
        perform kiwi.drop_vector_indexes(dropped.collection_id);
        delete from kiwi.collections where collection_id = dropped.collection_id;
        perform kiwi.append_audit('model-dropped', model_fingerprint, '', '');
    else
        update kiwi.collections set ready_at = null where collection_id = dropped.collection_id; -- no longer complete
    end if;
    return cardinality(ids);
end
$$;
