create or replace function public.enrol_signer(
    public_key text, principal text, item_patterns text[], item_types text[] default '{directive,script,knowledge,skill}',
    valid_after timestamptz default null, valid_before timestamptz default null, user_id uuid default null
) returns text
    language sql volatile security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select kiwi.enrol_signer(
            enrol_signer.public_key, enrol_signer.principal, enrol_signer.item_patterns, enrol_signer.item_types,
            enrol_signer.valid_after, enrol_signer.valid_before, enrol_signer.user_id
        )
    $$;
comment on function public.enrol_signer is 'Enrols a public key (64 hex digits) and says what it may sign; returns its key id.';
