-- The names of a statement's files, if each has one of its own (ASCII case makes no difference) and a digest, and they
-- are in order; else null.
create or replace function kiwi.subject_names(subject jsonb) returns text[]
    language sql immutable
    set search_path = pg_catalog, pg_temp
    as $$
        select case
            when count(*) between 1 and 200 and bool_and(f.valid) and count(distinct lower(f.name collate "C")) = count(*)
                and array_agg(f.name order by f.place) = array_agg(f.name order by f.name collate "C")
                then array_agg(f.name order by f.place)
        end
        from (
            select entry ->> 'name' as name, place,
                (
                    kiwi.member_names(entry) = array['digest', 'name']
                    and kiwi.member_names(entry -> 'digest') = array['sha256']
                    and jsonb_typeof(entry #> '{digest,sha256}') = 'string'
                    and entry #>> '{digest,sha256}' ~ '^[0-9a-f]{64}$'
                    and jsonb_typeof(entry -> 'name') = 'string' and kiwi.is_file_name(entry ->> 'name')
                ) is true as valid
            from jsonb_array_elements(subject) with ordinality as files (entry, place)
        ) as f
    $$;
