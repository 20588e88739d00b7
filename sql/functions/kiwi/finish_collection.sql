-- Makes a model's collection the active one, in one step, once nothing waits for it; returns its progress either way.
-- `insist` switches although items were tried and refused, and back to a model that was superseded.
create or replace function kiwi.finish_collection(model_fingerprint text, insist boolean) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    told record;
begin
    select * into told from kiwi.model_progress(true) as p where p.fingerprint = model_fingerprint;
    if (told.state = 'building' and told.waiting = 0)
        or (insist and told.state <> 'active' and told.waiting = told.refused)
    then
        perform kiwi.append_audit('model-switched', model_fingerprint, '', '', jsonb_build_object('left_out', told.waiting));
        perform kiwi.lock_index();
        update kiwi.collections set ready_at = clock_timestamp() where fingerprint = model_fingerprint;
        select * into told from kiwi.model_progress(true) as p where p.fingerprint = model_fingerprint;
    end if;
    return to_jsonb(told);
end
$$;
