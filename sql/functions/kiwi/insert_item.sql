-- Inserts a statement with its files under a key (empty: public), records it and wakes the indexer.
create or replace function kiwi.insert_item(
    payload bytea, signature bytea, signer text, owner text, subject jsonb, contents bytea[]
) returns kiwi_private.all_statements
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
declare
    stored kiwi_private.all_statements;
    number bigint := case
        when owner = '' then nextval('kiwi.statement_number') else nextval('kiwi_private.statement_number')
    end;
begin
    insert into kiwi_private.all_blobs (holder, sha256, content)
    select case when owner = '' then 0 else number end, entry #>> '{digest,sha256}', contents[place]
    from jsonb_array_elements(subject) with ordinality as files (entry, place)
    order by 2 -- so that no two publications wait for each other
    on conflict do nothing;
    insert into kiwi_private.all_statements (sequence, payload_type, payload, signature, signer, owner_key)
    values (number, 'application/vnd.in-toto+json', payload, signature, signer, owner)
    returning * into stored;
    perform kiwi.audit_statement('publish', stored);
    perform pg_notify('kiwi_published', ''); -- whoever listens learns no more than that there is something
    return stored;
end
$$;
