-- Whether a model's collection has no passages of an item that another's would find for the caller: two ordered walks of
-- an index for what is public, and the caller's own private items.
create or replace function kiwi.lacks_passages(wanted kiwi_private.collections, than kiwi_private.collections)
    returns boolean
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select exists (
            select from kiwi.passages as there
            where there.collection_id = (than).collection_id and there.searchable and not exists (
                select from kiwi.passages as here
                where here.collection_id = (wanted).collection_id and here.statement_id = there.statement_id and here.searchable
            )
        ) or exists (
            select from kiwi.own_passages((than).fingerprint, '{}') as there
            where not kiwi.has_passages(there.statement_id, (wanted).fingerprint)
        )
    $$;
