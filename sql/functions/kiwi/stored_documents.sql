-- The documents of a workspace as their readers get them, in the order of their paths: those that a filter lets through,
-- or the one of a path. Envelopes, by far the most of it, only where they are asked for.
create or replace function kiwi.stored_documents(
    workspace text, only_path text, filter jsonb, with_envelopes boolean
) returns table (
    path text, digest text, content_sha256 text, metadata jsonb, signed_at timestamptz, received_at timestamptz,
    key_id text, principal text, passages integer, rules text, envelope jsonb
)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    as $$
#variable_conflict use_column
declare
    number integer := kiwi.workspace_of(workspace, null);
    among bigint[] := case
        when only_path is null then kiwi.chosen_documents(number, kiwi.check_document_filter(filter))
    end;
begin
    return query
        select d.path, d.digest, d.content_sha256, d.metadata, d.signed_at, d.received_at, d.signer, s.principal, d.passages,
            d.rules, case when with_envelopes then kiwi.dsse_envelope(d.payload_type, d.payload, d.signer, d.signature) end
        from kiwi.documents as d
        join kiwi.signers as s on s.key_id = d.signer
        where d.workspace_id = number and s.status <> 'compromised'
            and (only_path is null or d.path = only_path)
            and (among is null or d.document_id in (select unnest(among)))
        order by d.path;
end
$$;
