-- The collection to search, by its name. Of items that of a model, or the active one where none is named; null when there
-- is none at all. Never one that would answer with less than the active one does: one that is being built, or one of a
-- model that the registry has moved on from and that lacks something since. Vectors of two models never mix.
create or replace function kiwi.collection_of(collection text, model_fingerprint text) returns integer
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    active kiwi_private.collections;
    wanted kiwi_private.collections;
    owner constant text := case collection when 'items' then '' else (kiwi.readable_keys(collection))[1] end;
begin
    if owner = '' then
        active := kiwi.active_collection();
    else
        select * into active from kiwi_private.collections as c where c.owner_key = owner;
    end if;
    if coalesce(model_fingerprint, '') in ('', active.fingerprint) then
        return active.collection_id;
    end if;
    select * into wanted from kiwi_private.collections as c where c.owner_key = owner and c.fingerprint = model_fingerprint;
    if wanted.collection_id is null and coalesce(active.passages, 0) = 0 then
        return null;
    elsif owner <> '' then
        raise exception using
            errcode = 'KW011',
            message = format('workspace %s holds vectors of %s, not of %s', collection, active.fingerprint, model_fingerprint),
            hint = format('use the model %s, or index all of it anew: kiwi workspace index --rebuild', active.fingerprint);
    elsif wanted.collection_id is null then
        raise exception using
            errcode = 'KW011',
            message = format('the registry holds vectors of %s, not of %s', active.fingerprint, model_fingerprint),
            hint = 'use the registry''s model, or have its indexer make vectors of yours: kiwi registry index';
    elsif wanted.ready_at is null then
        raise exception using
            errcode = 'KW011',
            message = (
                select format('the registry''s vectors of %s are being made: %s of %s items', model_fingerprint, p.items, p.items + p.waiting)
                from kiwi.model_progress(of_model => model_fingerprint) as p
            ),
            hint = format('until they are complete, search with %s', active.fingerprint);
    elsif kiwi.lacks_passages(wanted, active) then
        raise exception using
            errcode = 'KW011',
            message = format('the registry moved on to %s and no longer indexes all for %s', active.fingerprint, model_fingerprint),
            hint = format('use the model %s', active.fingerprint);
    end if;
    return wanted.collection_id;
end
$$;
