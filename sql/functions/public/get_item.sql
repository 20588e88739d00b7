create or replace function public.get_item(
    item_type text, item_id text, version text default null, files text[] default null,
    collection text default 'items'
) returns table (
        item_type text, item_id text, version text, digest text, content_sha256 text, received_at timestamptz,
        yanked_at timestamptz, yank_reason text, signer_status text, passages bigint, envelope jsonb, visibility text,
        files jsonb
    )
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select * from kiwi.get_item(
            get_item.item_type, get_item.item_id, get_item.version, get_item.files, get_item.collection
        )
    $$;
comment on function public.get_item is 'One version of an item, with its signed envelope and files; the newest when none is named. Or a document.';
