-- The collection to search: of a model, or the active one where none is named. Null when there is none at all.
-- Never a collection that would answer with less than the active one does: one that is being built, or one of a model
-- that the registry has moved on from and that lacks something since. Vectors of two models never mix.
create or replace function kiwi.collection_of(model_fingerprint text) returns integer
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    active kiwi.collections := kiwi.active_collection();
    wanted kiwi.collections;
begin
    if coalesce(model_fingerprint, '') = '' or model_fingerprint = active.fingerprint then
        return active.collection_id;
    end if;
    select * into wanted from kiwi.collections where fingerprint = model_fingerprint;
    if wanted.collection_id is null and coalesce(active.passages, 0) = 0 then
        return null;
    elsif wanted.collection_id is null then
        raise exception using
            errcode = 'KW011',
            message = format('the registry holds vectors of %s, not of %s', active.fingerprint, model_fingerprint),
            hint = 'use the registry''s model, or have its indexer make vectors of yours: kiwi registry index';
    elsif wanted.ready_at is null then
        raise exception using
            errcode = 'KW011',
            message = format(
                'the registry''s vectors of %s are being made: %s', model_fingerprint, kiwi.progress_text(model_fingerprint)
            ),
            hint = format('until they are complete, search with %s', active.fingerprint);
    elsif kiwi.lacks_passages(wanted.collection_id, active.collection_id) then
        raise exception using
            errcode = 'KW011',
            message = format('the registry moved on to %s and no longer indexes all for %s', active.fingerprint, model_fingerprint),
            hint = format('use the model %s', active.fingerprint);
    end if;
    return wanted.collection_id;
end
$$;
