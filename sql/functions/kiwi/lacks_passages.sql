-- Whether a collection has no passages of an item that another one would find for the caller: two ordered walks of an
-- index for what is public, and the caller's own private items.
create or replace function kiwi.lacks_passages(wanted integer, than integer) returns boolean
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select exists (
            select from kiwi.item_embeddings as there
            where there.collection_id = than and there.searchable and not exists (
                select from kiwi.item_embeddings as here
                where here.collection_id = wanted and here.digest = there.digest and here.searchable
            )
        ) or exists (
            select from kiwi.private_passages(than, '{}') as there
            join kiwi.item_embeddings as e on e.passage_id = there.passage_id
            where not exists (
                select from kiwi.item_embeddings as here where here.collection_id = wanted and here.digest = e.digest
            )
        )
    $$;
