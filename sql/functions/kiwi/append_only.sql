-- Refuses what would rewrite history.
create or replace function kiwi.append_only() returns trigger
    language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = 'KW014',
        message = format('%s on kiwi.%s is refused: its rows are never changed', lower(tg_op), tg_table_name),
        hint = 'publish a new version, or take one back with yank_item()';
end $$;
