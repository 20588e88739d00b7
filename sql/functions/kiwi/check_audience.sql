-- Returns if a statement was signed for this registry.
create or replace function kiwi.check_audience(statement jsonb) returns void
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    audience text := (select value from kiwi.settings where name = 'audience');
begin
    if (statement ->> 'registry') is distinct from audience then
        raise exception using
            errcode = 'KW008',
            message = format('signed for registry %L; this one is %L', statement ->> 'registry', audience),
            hint = 'set registry_name to this registry''s name and sign again: kiwi sign PATH';
    end if;
end
$$;
