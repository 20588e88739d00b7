-- Whose the private items of a signer are: the user's it is bound to, or the principal's.
create or replace function kiwi.owner_key_of(user_id uuid, principal text) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
    as $$ select coalesce('uid:' || user_id, 'principal:' || principal) $$;
