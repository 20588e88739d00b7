-- Digests of the versions that a checked filter lets through.
create or replace function kiwi.filtered_versions(filter jsonb) returns table (digest text)
    language sql stable rows 1000
    set search_path = pg_catalog, pg_temp
    as $$
        select v.digest
        from kiwi.item_versions as v
        join kiwi.signers as s on s.key_id = v.signer
        where (filter ->> 'item_type' is null or v.item_type = filter ->> 'item_type')
            and (filter ->> 'category' is null or v.metadata ->> 'category' = filter ->> 'category')
            and (filter ->> 'author' is null or v.metadata ->> 'author' = filter ->> 'author')
            and (filter -> 'tags' is null or (v.metadata -> 'tags') @> (filter -> 'tags'))
            and (filter ->> 'namespace' is null or split_part(v.item_id, '/', 1) = filter ->> 'namespace')
            and (filter ->> 'signer' is null or filter ->> 'signer' in (s.principal, s.key_id))
            and (filter ->> 'since' is null or v.signed_at >= (filter ->> 'since')::timestamptz)
    $$;
