-- Moves a signer from active to retired or to compromised, never back. Locks the row against a publication.
create or replace function kiwi.set_signer_status(which_key text, new_status text, reason text) returns boolean
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    signer kiwi.signers;
begin
    perform kiwi.take_locks('{}', which_key);
    select * into signer from kiwi.signers where key_id = which_key;
    if not found then
        raise exception using errcode = 'KW010',
            message = format('no signer has the key id %s', which_key),
            hint = 'SELECT key_id, principal FROM kiwi.signers;';
    end if;
    if signer.status = new_status or signer.status = 'compromised' then
        return false;
    end if;
    update kiwi.signers
    set status = new_status, status_changed_at = clock_timestamp(), status_reason = coalesce(reason, '')
    where key_id = which_key;
    perform kiwi.append_audit(
        new_status, signer.principal, '', which_key, jsonb_build_object('reason', coalesce(reason, ''))
    );
    perform kiwi.refresh_signer(which_key);
    return true;
end $$;
