-- Removes a model's passages and vectors of items, never the active one's: up to `max_passages` of them, so that nobody
-- waits long for the index; the collections themselves with the last. Returns how many it were; fewer than asked for:
-- all is gone.
create or replace function kiwi.drop_collection(model_fingerprint text, max_passages integer) returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    most integer := case when max_passages is not null then greatest(max_passages, 1) end;
    dropped integer[];
    ids bigint[];
begin
    perform kiwi.lock_audit();
    perform kiwi.lock_index();
    dropped := array(
        select c.collection_id from kiwi_private.collections as c
        where c.kind = 'items' and c.fingerprint = model_fingerprint order by c.collection_id desc -- the public one first
    );
    if coalesce(dropped[1], 0) <= 0 or dropped[1] = (kiwi.active_collection()).collection_id then
        raise exception using
            errcode = 'KW013',
            message = format('%s is not a model whose vectors can be dropped', model_fingerprint),
            hint = 'the active model''s stay; see which others there are: kiwi registry status';
    end if;
    ids := array(select e.passage_id from kiwi_private.all_passages as e where e.collection_id = any (dropped) limit most);
    perform kiwi.drop_passages(ids);
    if most is null or cardinality(ids) < most then
        perform kiwi.drop_vector_indexes(dropped[1]);
        delete from kiwi_private.collections as c where c.collection_id = any (dropped);
        perform kiwi.append_audit('model-dropped', model_fingerprint, '', '');
    else
        update kiwi_private.collections as c set ready_at = null where c.collection_id = dropped[1]; -- no longer complete
    end if;
    return cardinality(ids);
end
$$;
