-- Whether a statement has passages of a model, in the collection under its own key.
create or replace function kiwi.has_passages(which_statement bigint, model_fingerprint text) returns boolean
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select exists (
            select from kiwi_private.all_passages as e
            join kiwi_private.collections as c on c.collection_id = e.collection_id
            where e.statement_id = which_statement and c.fingerprint = model_fingerprint
        )
    $$;
