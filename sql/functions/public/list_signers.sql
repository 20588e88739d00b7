create or replace function public.list_signers() returns table (
        key_id text, principal text, item_patterns text[], item_types text[], valid_after timestamptz,
        valid_before timestamptz, status text, status_changed_at timestamptz, public_key text
    )
    language sql stable security invoker set search_path = pg_catalog, pg_temp as $$
        select s.key_id, s.principal, s.item_patterns, s.item_types, s.valid_after, s.valid_before, s.status,
            s.status_changed_at, encode(s.public_key, 'hex')
        from kiwi.signers as s
        order by s.principal, s.enrolled_at $$;
comment on function public.list_signers is 'Every signer: key id, principal, what it may sign, and its status.';
