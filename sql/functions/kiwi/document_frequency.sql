-- In how many passages of a workspace a term stands: of the given documents, or of all where there are none given.
create or replace function kiwi.document_frequency(
    workspace_number integer, wanted text, among bigint[], out term text, out passages bigint
)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    as $$
begin
    term := wanted;
    if among is null then
        select count(*) into passages from kiwi.document_postings as p
        where p.workspace_id = workspace_number and p.term = wanted;
    else
        select count(*) into passages from kiwi.document_postings as p
        where p.workspace_id = workspace_number and p.term = wanted and p.document_id in (select unnest(among));
    end if;
end
$$;
