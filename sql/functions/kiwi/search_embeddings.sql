-- The vector leg alone, over the active model's collection of items. The caller's own private items hide the public ones
-- of their name; as many passages more are asked for.
create or replace function kiwi.search_embeddings(query_embedding extensions.vector, match_count integer, filter jsonb)
    returns table (
        item_type text, item_id text, version text, digest text, principal text, text text, start_line integer,
        end_line integer, similarity float8
    )
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
declare
    active kiwi_private.collections := kiwi.active_collection();
    checked jsonb := kiwi.check_filter(filter, 'items');
    own bigint[];
    drafts bigint;
    hidden bigint[] := '{}';
    spare integer := 0;
begin
    perform kiwi.check_size(0, match_count);
    select array_agg(o.passage_id) filter (where o.matches), count(*) into own, drafts
    from kiwi.own_passages(active.fingerprint, checked) as o;
    if drafts > 0 then
        select coalesce(array_agg(distinct v.sequence), '{}'), count(*) into hidden, spare
        from (select distinct o.item_type, o.folded_id from kiwi.own_passages(active.fingerprint, checked) as o) as mine
        join kiwi.statements as v on v.owner_key = '' and (v.item_type, v.folded_id) = (mine.item_type, mine.folded_id)
        join kiwi.passages as e on e.collection_id = active.collection_id and e.statement_id = v.sequence and e.searchable;
    end if;
    return query
        select v.item_type, v.item_id, v.version, v.digest, v.principal, e.text, e.start_line, e.end_line,
            1 - (e.embedding operator(extensions.<=>) query_embedding)
        from unnest(
            array(select n.passage_id from kiwi.nearest_passages(active.collection_id, query_embedding, match_count + spare, checked) as n)
            || own
        ) as f (passage_id)
        join kiwi_private.all_passages as e on e.passage_id = f.passage_id
        cross join lateral (
            -- looked up for what was found, each by itself: see search_hybrid
            select w.item_type, w.item_id, w.version, w.digest, k.principal from kiwi_private.all_statements as w
            join kiwi.signers as k on k.key_id = w.signer
            where w.sequence = e.statement_id and w.yanked_at is null and k.status <> 'compromised'
            offset 0
        ) as v
        where e.statement_id <> all (hidden)
        order by 1 - (e.embedding operator(extensions.<=>) query_embedding) desc, f.passage_id
        limit match_count;
end
$$;
