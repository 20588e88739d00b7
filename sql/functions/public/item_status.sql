create or replace function public.item_status(item_id text, item_type text default null) returns table (
        item_type text, item_id text, version text, digest text, signer_status text, yanked_at timestamptz,
        passages bigint, searchable boolean, visibility text, content_sha256 text, key_id text, received_at timestamptz
    )
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select * from kiwi.item_status(item_status.item_type, item_status.item_id) $$;
comment on function public.item_status is 'What became of each version of an item, newest first.';
