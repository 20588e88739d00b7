-- Returns if vectors of this model are wanted here: it has a collection, or no model has vectors yet.
create or replace function kiwi.require_collection(model_fingerprint text) returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    active kiwi_private.collections := kiwi.active_collection();
begin
    if active.passages > 0 and not exists (
        select from kiwi_private.collections as c where c.owner_key = '' and c.fingerprint = model_fingerprint
    ) then
        raise exception using
            errcode = 'KW011',
            message = format('the registry holds vectors of %s, and none of %s are wanted', active.fingerprint, model_fingerprint),
            hint = 'use the registry''s model; its indexer starts a second one beside it with: kiwi registry index';
    end if;
end
$$;
