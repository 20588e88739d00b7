create or replace function public.yank_item(
    item_type text, item_id text, version text default null, reason text default ''
) returns integer
    language sql volatile security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.yank_item(yank_item.item_type, yank_item.item_id, yank_item.version, yank_item.reason) $$;
comment on function public.yank_item is 'Takes a version back: kept and gettable, no longer found.';
