-- The dimension that a model's fingerprint names: the third part from its end.
create or replace function kiwi.dimension_of(model_fingerprint text) returns integer
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
    as $$
declare
    dimension text := split_part(model_fingerprint, '/', -3);
begin
    if dimension !~ '^[1-9][0-9]{0,4}$' or dimension::integer > 16000 then
        raise exception using
            errcode = 'KW011',
            message = format('%s names no model whose vectors can be kept here', model_fingerprint),
            hint = 'a fingerprint is model/digest/dimension/pooling/tokens, of up to 16,000 dimensions';
    end if;
    return dimension::integer;
end
$$;
