-- The RFC 8785 canonical form. Postgres itself escapes text as that form does. Nested beyond 64 levels, or with a
-- number that `canonical_number` refuses, it is an error of class 22 or 54.
create or replace function kiwi.canonical_json(value jsonb, levels int default 64) returns text
    language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    kind constant text := jsonb_typeof(value);
begin
    if kind = 'number' then
        return kiwi.canonical_number(value::numeric);
    elsif kind not in ('object', 'array') then
        return value::text;
    elsif levels = 0 then
        raise exception using errcode = 'statement_too_complex', message = 'JSON nested beyond 64 levels';
    elsif kind = 'array' then
        return '[' || coalesce((
            select string_agg(kiwi.canonical_json(element, levels - 1), ',' order by place)
            from jsonb_array_elements(value) with ordinality as elements (element, place)
        ), '') || ']';
    end if;
    return '{' || coalesce((
        select string_agg(
            to_json(name)::text || ':' || kiwi.canonical_json(member, levels - 1), ',' order by kiwi.utf16_key(name) collate "C"
        )
        from jsonb_each(value) as members (name, member)
    ), '') || '}';
end $$;
