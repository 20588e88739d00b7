-- The collection of a model; without one named, the collection with most passages. Null when there is none at all.
-- A model that has no vectors here while another has is an error: the two never mix.
create or replace function kiwi.collection_of(model_fingerprint text) returns integer
    language plpgsql stable
    set search_path = ''
    as $$
declare
    found_id integer;
    biggest record;
begin
    select collection_id, fingerprint, passages into biggest from kiwi.collections
    order by passages desc, collection_id limit 1;
    if coalesce(model_fingerprint, '') = '' then
        return biggest.collection_id;
    end if;
    select collection_id into found_id from kiwi.collections where fingerprint = model_fingerprint;
    if found_id is null and biggest.passages > 0 then
        raise exception using
            errcode = 'KW011',
            message = format('the registry holds vectors of %s, not of %s', biggest.fingerprint, model_fingerprint),
            hint = 'use the registry''s model, or index it for yours: kiwi registry index';
    end if;
    return found_id;
end
$$;
