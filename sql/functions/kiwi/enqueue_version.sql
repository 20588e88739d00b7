-- Gives a fresh version the row that an indexer locks while it works on it.
create or replace function kiwi.enqueue_version() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
begin
    insert into kiwi.index_queue (digest) values (new.digest) on conflict (digest) do nothing;
    return null;
end
$$;
