-- Enrols a public key (64 hex digits), or changes what an enrolled one may sign. A compromised key never comes back.
-- The user is who owns this signer's items when logging in through Supabase; left out, it stays as it is.
create or replace function kiwi.enrol_signer(
    public_key_hex text, principal_name text, patterns text[], types text[], not_before timestamptz, not_after timestamptz,
    which_user uuid
) returns text
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
declare
    key bytea;
    enrolled kiwi.signers;
begin
    if public_key_hex !~ '^[0-9a-fA-F]{64}$' or coalesce(principal_name, '') = '' or coalesce(cardinality(patterns), 0) = 0
        or not types <@ array['directive', 'script', 'knowledge', 'skill', 'document'] or coalesce(cardinality(types), 0) = 0
        or exists (select from unnest(patterns) as p where p !~ '^[a-z0-9*][a-z0-9_*/-]*$')
    then
        raise exception using
            errcode = 'KW013',
            message = 'a signer needs a public key of 64 hex digits, a principal, item patterns and item types',
            hint = 'SELECT enrol_signer(''<kiwi keys export NAME>'', ''alice'', ''{acme/*}'');';
    end if;
    key := decode(public_key_hex, 'hex');
    if kiwi.ed25519_point(key) is null then
        raise exception using
            errcode = 'KW013',
            message = 'this public key is no point of Ed25519, not canonically encoded, or of small order',
            hint = 'ask for the key again: kiwi keys export NAME';
    end if;
    if exists (
        select from kiwi.signers as s, unnest(s.item_patterns) as theirs, unnest(patterns) as ours
        where s.public_key <> key and s.status = 'active' and theirs <> ours
            and kiwi.fold_item_id(theirs) = kiwi.fold_item_id(ours)
    ) then
        raise exception using
            errcode = 'KW012',
            message = 'another signer has a pattern that differs from one of these in ''-'' and ''_'' alone',
            hint = 'ids that differ in these alone are the same id: use the other signer''s spelling, or another namespace';
    end if;
    insert into kiwi.signers as s (
        public_key, principal, item_patterns, item_types, valid_after, valid_before, user_id
    )
    values (key, principal_name, patterns, types, not_before, not_after, which_user)
    on conflict (key_id) do update set
        principal = excluded.principal, item_patterns = excluded.item_patterns, item_types = excluded.item_types,
        valid_after = excluded.valid_after, valid_before = excluded.valid_before,
        user_id = coalesce(excluded.user_id, s.user_id)
    where s.status = 'active'
    returning * into enrolled;
    if enrolled.key_id is null then
        raise exception using
            errcode = 'KW003',
            message = 'this key was retired or revoked here and cannot be enrolled again',
            hint = 'make a new key: kiwi keys new NAME';
    end if;
    perform kiwi.append_audit(
        'enrol', principal_name, '', enrolled.key_id, jsonb_build_object(
            'patterns', patterns, 'types', types, 'valid_after', not_before, 'valid_before', not_after,
            'user_id', enrolled.user_id
        )
    );
    return enrolled.key_id;
end
$$;
