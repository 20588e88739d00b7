-- One writer of the inverted index at a time: statistics are the sum of what is searchable, always. Short: vectors
-- and terms are made before, and a holder that falls silent loses its transaction, so that no revocation waits for it.
create or replace function kiwi.lock_index() returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    perform pg_advisory_xact_lock(7310595114004);
    perform set_config('idle_in_transaction_session_timeout', '15s', true);
end
$$;
