-- Whether the caller owns what stands under a key.
create or replace function kiwi.is_mine(owner_key text) returns boolean
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$ select owner_key in ('principal:' || kiwi.caller(), 'uid:' || kiwi.user_id()) is true or kiwi.is_superuser() $$;
