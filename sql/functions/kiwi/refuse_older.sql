-- Refuses to take what was signed before anything that a path has, or had until it was replaced, deleted or cleared;
-- what a key signed that is now compromised does not count. Of two signed in one second the later to arrive stays.
create or replace function kiwi.refuse_older(owner text, path text, signed_at timestamptz) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    latest timestamptz;
begin
    select max(t.signed_at) into latest
    from (
        select v.signer, v.signed_at
        from kiwi_private.statements as v
        where v.owner_key = owner and v.folded_id = refuse_older.path
        union all
        select m.signer, m.signed_at
        from kiwi_private.removed_documents as m
        where m.owner_key = owner and m.path = refuse_older.path
    ) as t
    join kiwi.signers as s on s.key_id = t.signer
    where s.status <> 'compromised';
    if latest > refuse_older.signed_at then
        raise exception using
            errcode = 'KW018',
            message = format(
                '%s was signed at %s, and what is there, or was, at %s', substr(owner, 12) || '/' || path,
                to_char(refuse_older.signed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                to_char(latest at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
            ),
            hint = 'somebody else''s is newer: index the file as it is now, or see to the clocks';
    end if;
end
$$;
