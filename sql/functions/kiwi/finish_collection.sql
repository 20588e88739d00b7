-- Makes a model's collection the active one, in one step, once nothing waits for it; returns its progress either way.
-- `insist` switches although items were tried and refused, and back to a model that was superseded.
create or replace function kiwi.finish_collection(model_fingerprint text, insist boolean) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    told record;
begin
    for look in 1..2 loop -- the second time under the locks, when nothing can come between
        select * into told from kiwi.model_progress(true, model_fingerprint);
        if not found then
            raise exception using
                errcode = 'KW010',
                message = format('the registry has no vectors of %s, and none are being made', model_fingerprint),
                hint = 'start them: kiwi registry index';
        end if;
        if not (told.state = 'building' and told.waiting = 0)
            and not (insist and told.state <> 'active' and told.waiting = told.refused)
        then
            return to_jsonb(told);
        end if;
        perform kiwi.lock_audit();
        perform kiwi.lock_index();
    end loop;
    perform kiwi.append_audit('model-switched', model_fingerprint, '', '', jsonb_build_object('left_out', told.waiting));
    update kiwi.collections set ready_at = clock_timestamp() where fingerprint = model_fingerprint;
    return (select to_jsonb(p) from kiwi.model_progress(true, model_fingerprint) as p);
end
$$;
