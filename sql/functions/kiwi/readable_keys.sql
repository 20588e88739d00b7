-- The keys under which the caller may read statements of a collection: every look-up begins with them. Documents are a
-- workspace's own files: not for whoever holds a publishable key, whether there are any or not.
create or replace function kiwi.readable_keys(collection text) returns text[]
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if collection = 'items' then
        return array[''] || kiwi.owner_keys();
    elsif kiwi.caller() = 'anon' then
        raise insufficient_privilege using message = 'documents are not for the role anon';
    end if;
    return array['collection:' || collection];
end
$$;
