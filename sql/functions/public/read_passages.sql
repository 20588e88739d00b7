create or replace function public.read_passages(which_digest text, model_fingerprint text) returns table (
        ordinal integer, text text, context text, heading text[], start_line integer, end_line integer, length integer,
        terms text[], frequencies integer[], searchable boolean, embedding text, file text, kind text
    )
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$ select * from kiwi.read_passages(read_passages.which_digest, read_passages.model_fingerprint) $$;
comment on function public.read_passages is 'An item''s passages and vectors as stored: for those who check them.';
