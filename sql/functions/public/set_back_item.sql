create or replace function public.set_back_item(which_digest text, what_was_wrong text) returns void
    language sql volatile security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.set_back_item(set_back_item.which_digest, set_back_item.what_was_wrong) $$;
comment on function public.set_back_item is 'Notes why an item could not be indexed, and tries it again later: for the indexer.';
