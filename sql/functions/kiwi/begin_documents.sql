-- The collection of a workspace that is to hold vectors of this model, made if it is new, with its row kept from being
-- changed to another model until the transaction ends. One without documents may change its model.
create or replace function kiwi.begin_documents(collection text, model_fingerprint text) returns kiwi_private.collections
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    held kiwi_private.collections;
    owner constant text := 'collection:' || collection;
begin
    select * into held from kiwi_private.collections as c where c.owner_key = owner for key share;
    if not found then
        perform kiwi.make_collection(collection, owner, model_fingerprint, clock_timestamp());
        select * into held from kiwi_private.collections as c where c.owner_key = owner for key share;
    end if;
    if held.fingerprint <> model_fingerprint then
        -- nobody waits here: those who put documents hold the row, and may wait for what this transaction holds
        select * into held from kiwi_private.collections as c where c.owner_key = owner for update nowait;
        if exists (select from kiwi_private.statements as v where v.owner_key = owner) then
            raise exception using
                errcode = 'KW011',
                message = format('workspace %s holds vectors of %s, not of %s', collection, held.fingerprint, model_fingerprint),
                hint = 'use its model, or index all of it anew: kiwi workspace index --rebuild';
        end if;
        update kiwi_private.collections as c
        set fingerprint = model_fingerprint, dimension = kiwi.dimension_of(model_fingerprint)
        where c.collection_id = held.collection_id
        returning * into held;
    end if;
    return held;
end
$$;
