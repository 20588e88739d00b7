-- Returns the contents of a statement's files, in its order, if they are exactly those that were signed. All bytes come
-- with every publication, so that naming a digest gives nobody a file.
create or replace function kiwi.check_files(subject jsonb, files jsonb) returns bytea[]
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    names text[] := kiwi.subject_names(subject);
    wrong text;
    contents bytea[] := '{}';
    content bytea;
begin
    select n.name into wrong
    from (select unnest(names) as name union select unnest(kiwi.member_names(files))) as n
    where n.name <> all (names) or not files ? n.name or jsonb_typeof(files -> n.name) <> 'string'
    order by n.name collate "C" limit 1;
    if wrong is null then
        for n in 1 .. cardinality(names) loop
            content := kiwi.decode_base64(files ->> names[n]);
            contents := contents || content;
            if encode(sha256(content), 'hex') <> (subject -> n - 1 #>> '{digest,sha256}') then
                wrong := names[n];
                exit;
            end if;
        end loop;
    end if;
    if wrong is not null then
        raise exception using
            errcode = 'KW020',
            message = format('file %s is not one of those that were signed, or has other bytes', left(wrong, 200)),
            hint = 'hand in exactly the signed files, or sign the item again: kiwi sign PATH';
    end if;
    return contents;
end
$$;
