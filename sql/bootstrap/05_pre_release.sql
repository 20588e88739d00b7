-- A registry of a pre-release Kiwi is refused before any change: its tables hold statements of another form.
do $$
declare
    revision text := '';
begin
    if to_regclass('kiwi.alembic_version') is not null then
        execute 'select coalesce(max(version_num), '''') from kiwi.alembic_version' into revision;
    end if;
    if revision <> '' and revision < '0100' or to_regclass('kiwi.item_versions') is not null then
        raise exception using
            errcode = 'KW013',
            message = 'this database holds the registry of a pre-release Kiwi, whose statements have another form',
            hint = 'use an empty database and publish again, then on each client: kiwi registry accept';
    end if;
end
$$;
