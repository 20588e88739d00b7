-- What BM25 needs to know of a workspace: passages, documents, their total length in terms, and how many passages hold
-- each given term. Counted in the index: what is there is what counts, whoever is writing.
create or replace function kiwi.document_statistics(workspace text, terms text[], model_fingerprint text) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
declare
    number integer := kiwi.workspace_of(workspace, model_fingerprint);
    among bigint[] := kiwi.chosen_documents(number, '{}');
    told jsonb;
begin
    if cardinality(terms) > 10000 then
        raise exception using
            errcode = 'KW013',
            message = 'up to 10,000 terms are counted at once',
            hint = 'ask a shorter question';
    end if;
    select jsonb_build_object(
        'passages', coalesce(sum(d.passages), 0), 'items', count(*), 'total_length', coalesce(sum(d.total_length), 0)
    )
    into told
    from kiwi.documents as d
    join kiwi.signers as s on s.key_id = d.signer
    where d.workspace_id = number and s.status <> 'compromised' and d.passages > 0;
    return told || jsonb_build_object('document_frequency', coalesce(
        (
            select jsonb_object_agg(f.term, f.passages)
            from (select distinct u.term from unnest(terms) as u (term)) as t
            cross join lateral kiwi.document_frequency(number, t.term, among) as f
            where f.passages > 0
        ),
        '{}'
    ));
end
$$;
