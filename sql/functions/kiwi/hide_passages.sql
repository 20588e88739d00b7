-- Takes passages out of the inverted index; their statistics are for the caller to change.
create or replace function kiwi.hide_passages(ids bigint[]) returns void
    language sql
    set search_path = pg_catalog, pg_temp
    as $$
        delete from kiwi_private.all_postings as p where p.passage_id in (select unnest(ids));
        update kiwi_private.all_passages as e set searchable = false where e.passage_id = any (ids);
    $$;
