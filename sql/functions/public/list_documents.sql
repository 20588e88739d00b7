create or replace function public.list_documents(
    workspace text, filter jsonb default '{}', with_envelopes boolean default false
) returns table (
        path text, digest text, content_sha256 text, metadata jsonb, signed_at timestamptz, received_at timestamptz,
        key_id text, principal text, passages integer, rules text, envelope jsonb
    )
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    as $$
        select * from kiwi.stored_documents(
            list_documents.workspace, null, list_documents.filter, list_documents.with_envelopes
        )
    $$;
comment on function public.list_documents is 'The documents of a workspace that a filter lets through, by path; with their envelopes where asked for.';
