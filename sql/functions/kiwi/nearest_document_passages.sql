-- The vector leg over documents: the `depth` passages nearest to a query, exactly. Every one is compared, of the given
-- documents or of all where there are none given: that is quick up to a few hundred thousand.
create or replace function kiwi.nearest_document_passages(
    workspace_number integer, query_embedding extensions.vector, depth integer, among bigint[]
) returns table (passage_id bigint)
    language plpgsql stable rows 100
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
begin
    if query_embedding is null then
        return;
    elsif among is null then
        return query
            select p.passage_id from kiwi.document_passages as p
            where p.workspace_id = workspace_number
            order by p.embedding operator(extensions.<=>) query_embedding, p.passage_id
            limit depth;
    else
        return query
            select p.passage_id from kiwi.document_passages as p
            where p.workspace_id = workspace_number and p.document_id in (select unnest(among))
            order by p.embedding operator(extensions.<=>) query_embedding, p.passage_id
            limit depth;
    end if;
end
$$;
