-- Whether a payload is the canonical form of what it parses to. Never an exception.
create or replace function kiwi.is_canonical(payload bytea) returns boolean
    language plpgsql immutable strict parallel restricted set search_path = pg_catalog, pg_temp as $$
begin
    return convert_to(kiwi.canonical_json(kiwi.payload_json(payload)), 'UTF8') = payload;
exception when data_exception or program_limit_exceeded or statement_too_complex then
    return false;
end $$;
