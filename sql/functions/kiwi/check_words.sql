-- Returns if the words leg can score with what the caller gives: a weight for each term, as large as BM25's ever are, and
-- average lengths that a division takes.
create or replace function kiwi.check_words(
    terms text[], weights float8[], average_length float8, average_item_length float8
) returns void
    language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if coalesce(cardinality(terms), 0) <> coalesce(cardinality(weights), 0)
        or array_position(terms, null) is not null
        or exists (select from unnest(weights) as w (weight) where (w.weight between 0 and 1e6) is not true)
    then
        raise exception using errcode = 'KW013',
            message = 'each term has a weight of its own, from 0 to 1,000,000',
            hint = 'a weight is ln(1 + (n - df + 0.5) / (df + 0.5)), as collection_statistics tells n and df';
    end if;
    if cardinality(terms) > 0 and (
        (average_length between 1e-6 and 1e12) is not true or (average_item_length between 1e-6 and 1e12) is false
    ) then
        raise exception using errcode = 'KW013',
            message = 'an average length is a number above 0',
            hint = 'divide the total_length that collection_statistics tells by its passages, or by its items';
    end if;
end $$;
