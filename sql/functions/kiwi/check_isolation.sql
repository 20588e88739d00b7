-- Returns if the transaction sees what others have committed: an older snapshot would miss the newest audit record, and the
-- version rule what was published since.
create or replace function kiwi.check_isolation() returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using
            errcode = 'KW013',
            message = format('the registry is not written in a %s transaction', current_setting('transaction_isolation')),
            hint = 'BEGIN ISOLATION LEVEL READ COMMITTED;';
    end if;
end
$$;
