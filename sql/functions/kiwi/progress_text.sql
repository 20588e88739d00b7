-- How far a model's collection is, for messages: "3 of 10 items".
create or replace function kiwi.progress_text(model_fingerprint text) returns text
    language sql stable
    set search_path = pg_catalog, pg_temp
    as $$
        select format('%s of %s items', p.items, p.items + p.waiting)
        from kiwi.model_progress(of_model => model_fingerprint) as p
    $$;
