create or replace function public.requeue_item(which_digest text, problem text) returns void
    language sql volatile security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select kiwi.requeue_item(requeue_item.which_digest, requeue_item.problem) $$;
comment on function public.requeue_item is 'Notes why an item could not be indexed, and tries it again later: for the indexer.';
