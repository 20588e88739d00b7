create or replace function public.retire_signer(key_id text, reason text default '') returns boolean
    language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$ select kiwi.set_signer_status(retire_signer.key_id, 'retired', retire_signer.reason) $$;
comment on function public.retire_signer is 'A key signs no more from now on; what was received before stays.';
