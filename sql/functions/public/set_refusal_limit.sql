create or replace function public.set_refusal_limit(per_minute integer) returns void
    language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$ select kiwi.set_refusal_limit(set_refusal_limit.per_minute) $$;
comment on function public.set_refusal_limit is 'Sets how many calls of one login are refused within a minute before further ones are refused unread: for admins.';
