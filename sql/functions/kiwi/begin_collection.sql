-- Starts a model's collection, beside the active one where there is one; returns its state (see model_progress).
create or replace function kiwi.begin_collection(model_fingerprint text) returns text
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if split_part(model_fingerprint, '/', -3) <> '384' then
        raise exception using
            errcode = 'KW011',
            message = format('the registry keeps vectors of 384 dimensions, and %s makes others', model_fingerprint),
            hint = 'use a model of 384 dimensions';
    end if;
    if not exists (select from kiwi.collections where fingerprint = model_fingerprint) then
        -- the audit's lock before the index's, as everywhere; under it nobody else starts one
        perform kiwi.append_audit('model-begun', model_fingerprint, '', '');
        perform kiwi.lock_index();
        insert into kiwi.collections (fingerprint, ready_at)
        values (
            model_fingerprint,
            case when coalesce((kiwi.active_collection()).passages, 0) = 0 then clock_timestamp() end
        )
        on conflict (fingerprint) do nothing;
    end if;
    return (select p.state from kiwi.model_progress(of_model => model_fingerprint) as p);
end
$$;
