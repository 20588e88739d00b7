create or replace function public.revoke_signer(key_id text, reason text default '') returns boolean
    language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$ select kiwi.set_signer_status(revoke_signer.key_id, 'compromised', revoke_signer.reason) $$;
comment on function public.revoke_signer is 'A key is compromised: all that it signed vanishes from search at once.';
