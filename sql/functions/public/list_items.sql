create or replace function public.list_items(
    filter jsonb default '{}', collection text default 'items'
) returns table (
        item_type text, item_id text, version text, digest text, content_sha256 text, received_at timestamptz,
        yanked_at timestamptz, yank_reason text, signer_status text, passages bigint, envelope jsonb, visibility text
    )
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select * from kiwi.list_items(list_items.filter, list_items.collection) $$;
comment on function public.list_items is 'The newest version of every item that a filter lets through, or the documents of another collection.';
