-- Okapi BM25 of one term in one passage, k1 = 1.2 and b = 0.75 (Robertson & Zaragoza 2009, §3.2), as kiwi_rag.lexical.
create or replace function kiwi.bm25(weight float8, frequency integer, length integer, average_length float8)
    returns float8
    language sql immutable parallel safe
    as $$
        select weight * frequency * 2.2::float8
            / (frequency + 1.2::float8 * (0.25::float8 + 0.75::float8 * length / average_length))
    $$;
