-- What waits for a model's indexer, as it was signed: oldest first, after a sequence number.
create or replace function kiwi.pending_items(model_fingerprint text, max_count integer, after bigint)
    returns table (sequence bigint, envelope jsonb)
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
        select v.sequence, kiwi.envelope_of(v)
        from kiwi.waiting_items(model_fingerprint, after, max_count) as w
        join kiwi_private.all_statements as v on v.sequence = w.statement_id
        order by v.sequence
    $$;
