-- Removes a model's passages and vectors; never the active one's. Returns how many passages that were.
create or replace function kiwi.drop_collection(model_fingerprint text) returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    dropped kiwi.collections;
    removed bigint;
begin
    perform kiwi.append_audit('model-dropped', model_fingerprint, '', '');
    perform kiwi.lock_index();
    select * into dropped from kiwi.collections where fingerprint = model_fingerprint;
    if dropped.collection_id is null or dropped.collection_id = (kiwi.active_collection()).collection_id then
        raise exception using
            errcode = 'KW013',
            message = format('%s is not a model whose vectors can be dropped', model_fingerprint),
            hint = 'the active model''s stay; see which others there are: kiwi registry status';
    end if;
    delete from kiwi.postings where collection_id = dropped.collection_id;
    delete from kiwi.term_statistics where collection_id = dropped.collection_id;
    delete from kiwi.item_embeddings where collection_id = dropped.collection_id;
    get diagnostics removed = row_count;
    delete from kiwi.collections where collection_id = dropped.collection_id;
    return removed;
end
$$;
