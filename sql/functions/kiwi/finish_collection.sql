-- Makes a model's collection the active one, in one step, once nothing waits for it; returns its progress either way.
-- `insist` switches although items were tried and refused, and back to a model that was superseded.
create or replace function kiwi.finish_collection(model_fingerprint text, insist boolean) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    progress record;
begin
    for attempt in 1..2 loop -- the second time under the locks, when nothing can come between
        select * into progress from kiwi.model_progress(true, model_fingerprint);
        if not found then
            raise exception using
                errcode = 'KW010',
                message = format('the registry has no vectors of %s, and none are being made', model_fingerprint),
                hint = 'start them: kiwi registry index';
        end if;
        if not (progress.state = 'building' and progress.waiting = 0)
            and not (insist and progress.state <> 'active' and progress.waiting = progress.refused)
        then
            return to_jsonb(progress);
        end if;
        perform kiwi.lock_audit();
        perform kiwi.lock_index();
    end loop;
    perform kiwi.append_audit('model-switched', model_fingerprint, '', '');
    update kiwi_private.collections as c set ready_at = clock_timestamp()
    where c.owner_key = '' and c.fingerprint = model_fingerprint;
    return (select to_jsonb(p) from kiwi.model_progress(true, model_fingerprint) as p);
end
$$;
