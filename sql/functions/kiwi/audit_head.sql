-- Number and hash of the newest audit record, as 'seq:hash'; '0:' for an empty log.
create or replace function kiwi.audit_head() returns text
    language sql stable security definer set search_path = pg_catalog, pg_temp as $$ select coalesce((select seq || ':' || hash from kiwi.audit order by seq desc limit 1), '0:') $$;
