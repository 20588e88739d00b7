-- The collection of a model under a key, made if it is not there; one that is not public is searched as soon as it is.
create or replace function kiwi.make_collection(collection text, owner text, model_fingerprint text, ready timestamptz)
    returns kiwi_private.collections
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    made kiwi_private.collections;
begin
    select * into made from kiwi_private.collections as c where c.owner_key = owner and c.fingerprint = model_fingerprint;
    if not found then
        insert into kiwi_private.collections (collection_id, name, owner_key, fingerprint, dimension, ready_at)
        values (
            case when owner = '' then nextval('kiwi.collection_number') else nextval('kiwi_private.collection_number') end,
            collection, owner, model_fingerprint, kiwi.dimension_of(model_fingerprint), ready
        )
        on conflict (owner_key, fingerprint) do nothing;
        select * into made from kiwi_private.collections as c where c.owner_key = owner and c.fingerprint = model_fingerprint;
    end if;
    return made;
end
$$;
