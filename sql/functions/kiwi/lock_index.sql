-- One writer of the inverted index at a time: statistics are the sum of what is searchable, always. Short: vectors
-- and terms are made before.
create or replace function kiwi.lock_index() returns void
    language sql
    set search_path = ''
    as $$ select pg_advisory_xact_lock(7310595114004) $$;
