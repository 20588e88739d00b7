-- Returns the signer if it may make this statement now. Locks the signer's row: a revocation waits for this
-- publication, or this publication sees the revocation.
create or replace function kiwi.check_signer(signer_key text, predicate jsonb) returns kiwi.signers
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    signer kiwi.signers;
    moment timestamptz := kiwi.parse_time(predicate ->> 'signed_at');
begin
    select * into signer from kiwi.signers where key_id = signer_key for share;
    if not found then
        raise exception using
            errcode = 'KW002',
            message = format('key %s… is not enrolled in this registry', left(signer_key, 16)),
            hint = 'an admin lets it publish: kiwi registry enrol PRINCIPAL, or SELECT enrol_signer(…);';
    end if;
    if signer.status <> 'active' then
        raise exception using
            errcode = 'KW003',
            message = format('the key of %s is %s since %s', signer.principal, signer.status, signer.status_changed_at),
            hint = 'sign the item again with a current key: kiwi sign PATH --key NAME';
    end if;
    if moment < signer.valid_after or moment >= signer.valid_before or clock_timestamp() >= signer.valid_before then
        raise exception using
            errcode = 'KW003',
            message = format('the key of %s counts only in its time window, and %s is outside', signer.principal, moment),
            hint = 'sign the item again with a current key: kiwi sign PATH --key NAME';
    end if;
    if not (predicate ->> 'item_type') = any (signer.item_types)
        or not exists (
            select from unnest(signer.item_patterns) as pattern
            where kiwi.matches_pattern(pattern, predicate ->> 'item_id')
        )
    then
        raise exception using
            errcode = 'KW004',
            message = format(
                '%s may not sign %s:%s (%s of %s only)', signer.principal, predicate ->> 'item_type',
                predicate ->> 'item_id', array_to_string(signer.item_types, ', '),
                array_to_string(signer.item_patterns, ', ')
            ),
            hint = 'an admin widens what it may sign: kiwi registry enrol PRINCIPAL, or SELECT enrol_signer(…) with the same key';
    end if;
    if moment > clock_timestamp() + interval '5 minutes' then
        raise exception using
            errcode = 'KW005',
            message = format('signed in the future: %s', moment),
            hint = 'set the clock of the signing machine and sign again: kiwi sign PATH';
    end if;
    return signer;
end
$$;
