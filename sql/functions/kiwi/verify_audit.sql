-- Number of the first record that breaks the chain; null when it holds from first to last.
create or replace function kiwi.verify_audit() returns bigint
    language sql stable security definer set search_path = pg_catalog, pg_temp as $$
        select min(seq) from (
            select
                a.seq,
                a.hash is distinct from kiwi.audit_hash(a)
                or a.previous_hash is distinct from coalesce(lag(a.hash) over w, repeat('0', 64))
                or a.seq <> row_number() over w as broken
            from kiwi.audit as a
            window w as (order by a.seq)
        ) as chain
        where broken $$;
