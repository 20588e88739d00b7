-- Starts a model's collection, beside the active one where there is one; returns its state (see model_progress).
create or replace function kiwi.begin_collection(model_fingerprint text) returns text
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
begin
    perform kiwi.dimension_of(model_fingerprint);
    if not exists (select from kiwi_private.collections as c where c.owner_key = '' and c.fingerprint = model_fingerprint) then
        -- the audit's lock before the index's, as everywhere; under it nobody else starts one
        perform kiwi.append_audit('model-begun', model_fingerprint, '', '');
        perform kiwi.lock_index();
        perform kiwi.make_collection(
            'items', '', model_fingerprint,
            case when coalesce((kiwi.active_collection()).passages, 0) = 0 then clock_timestamp() end
        );
    end if;
    return (select p.state from kiwi.model_progress(of_model => model_fingerprint) as p);
end
$$;
