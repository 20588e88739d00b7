-- `kiwi` holds the code and what everybody may read, `kiwi_private` what only the functions of its owner read: private
-- items and all documents. Neither is exposed. pgvector stands outside `public`.
create schema if not exists kiwi authorization kiwi_owner;
create schema if not exists kiwi_private authorization kiwi_owner;
create schema if not exists extensions;
create extension if not exists vector with schema extensions;
do $$
declare
    place text;
begin
    select extnamespace::regnamespace::text into place from pg_catalog.pg_extension where extname = 'vector';
    if place <> 'extensions' then
        raise exception using
            errcode = 'KW013',
            message = format('pgvector is installed in schema %s; Kiwi expects it in schema extensions', place),
            hint = 'ALTER EXTENSION vector SET SCHEMA extensions;';
    end if;
end
$$;
grant usage on schema extensions to kiwi_owner, kiwi_publisher, kiwi_indexer, kiwi_admin, anon, authenticated, service_role;
grant usage, create on schema public to kiwi_owner;
grant usage on schema public to kiwi_publisher, kiwi_indexer, kiwi_admin, anon, authenticated, service_role;
