-- Names the registry: only statements signed for this name are taken. Set once; a change would void what is there.
create or replace function kiwi.set_audience(name_of_registry text) returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if exists (select from kiwi.settings where name = 'audience' and value = name_of_registry) then
        return;
    end if;
    if coalesce(name_of_registry, '') = '' or exists (select from kiwi_private.all_statements) then
        raise exception using
            errcode = 'KW013',
            message = 'a registry gets a name that is not empty, once: what was published is signed for it',
            hint = 'set registry_name to the name that this registry has: kiwi registry status';
    end if;
    insert into kiwi.settings (name, value) values ('audience', name_of_registry)
    on conflict (name) do update set value = excluded.value;
    perform kiwi.append_audit('audience', name_of_registry, '', '');
end
$$;
