-- What waits for a model's indexer, as it was signed: oldest first, after a sequence number.
create or replace function kiwi.pending_versions(model_fingerprint text, max_count integer, after bigint)
    returns table (sequence bigint, envelope jsonb)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select w.sequence, kiwi.envelope_of(v)
        from kiwi.waiting_versions(model_fingerprint, after, max_count) as w
        join kiwi.item_versions as v on v.sequence = w.sequence
        order by w.sequence
    $$;
