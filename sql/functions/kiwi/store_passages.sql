-- Stores an item's passages for one model, replacing what it had: for the indexer alone. Where the same statement stands
-- under several keys, for each.
create or replace function kiwi.store_passages(which_digest text, model_fingerprint text, passages jsonb) returns integer
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    statement kiwi_private.all_statements;
    held kiwi_private.collections;
    ids bigint[];
begin
    perform from kiwi_private.index_queue as q
    where q.statement_id in (select kiwi.items_of(which_digest)) and q.attempts > 0 order by q.statement_id
    for update;
    update kiwi_private.index_queue as q set attempts = 0, problem = '', not_before = '-infinity'
    where q.statement_id in (select kiwi.items_of(which_digest)) and q.attempts > 0;
    if not exists (select from kiwi.items_of(which_digest)) then
        raise exception using errcode = 'KW010',
            message = format('no published item has the digest %s', which_digest),
            hint = 'publish it first: kiwi publish REF';
    end if;
    -- The lock that the passages' foreign key takes, before the index's: see lock_index.
    perform from kiwi_private.all_statements as v where v.sequence in (select kiwi.items_of(which_digest)) for key share;
    perform kiwi.lock_index();
    perform kiwi.require_collection(model_fingerprint); -- begin_collection alone starts a second beside a first
    for statement in select * from kiwi_private.all_statements as v where v.sequence in (select kiwi.items_of(which_digest)) loop
        perform kiwi.make_collection('items', '', model_fingerprint, clock_timestamp());
        held := kiwi.make_collection('items', statement.owner_key, model_fingerprint, clock_timestamp());
        perform kiwi.drop_passages(array(
            select e.passage_id from kiwi_private.all_passages as e
            where e.collection_id = held.collection_id and e.statement_id = statement.sequence
        ));
        ids := kiwi.insert_passages(statement, held, passages, false);
        if statement.owner_key = '' then
            perform kiwi.refresh_items(array[statement.item_type], array[statement.folded_id]);
        end if;
    end loop;
    return cardinality(ids);
exception when data_exception or integrity_constraint_violation then
    raise exception using errcode = 'KW017',
        message = format('the passages of %s are not usable: %s', left(which_digest, 16), sqlerrm),
        hint = 'split and embed the item again with this version of Kiwi: kiwi registry index';
end $$;
