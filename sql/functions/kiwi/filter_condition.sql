-- A checked filter as conditions on statements as v, for dynamic SQL: fixed texts, chosen by the filter's keys, whose
-- values are read from parameter $1, the filter itself. So each filter gets a plan of its own, and its indexes. Whatever
-- is below what a path means is meant, too.
create or replace function kiwi.filter_condition(filter jsonb) returns text
    language sql immutable
    set search_path = pg_catalog, pg_temp
    as $$
        select coalesce(string_agg(known.condition, ' and '), 'true')
        from (
            values
                ('item_type', 'v.item_type = $1 ->> ''item_type'''),
                ('category', '(v.metadata ->> ''category'') = $1 ->> ''category'''),
                ('author', '(v.metadata ->> ''author'') = $1 ->> ''author'''),
                ('tags', '(v.metadata -> ''tags'') @> ($1 -> ''tags'')'),
                ('namespace', 'split_part(v.item_id, ''/'', 1) = $1 ->> ''namespace'''),
                (
                    'signer',
                    'v.signer = any (array(select s.key_id from kiwi.signers as s where $1 ->> ''signer'' in (s.principal, s.key_id)))'
                ),
                ('since', 'v.signed_at >= ($1 ->> ''since'')::timestamptz'),
                ('service', '(v.metadata ->> ''service'') = $1 ->> ''service'''),
                ('domain', '(v.metadata ->> ''domain'') = $1 ->> ''domain'''),
                ('file_type', '$1 -> ''file_type'' @> (v.metadata -> ''file_type'')'),
                (
                    'path',
                    'coalesce(v.item_id like kiwi.path_pattern($1 ->> ''path'') escape ''!'''
                    ' or v.item_id like kiwi.path_pattern($1 ->> ''path'') || ''/%'' escape ''!'', true)'
                )
        ) as known (key, condition)
        where filter ->> known.key is not null
    $$;
