-- The documents of a workspace that a checked filter lets through and whose signer's key is not compromised; null where
-- these are all, and nothing has to be narrowed. Of a path '*' stands for any run of characters, '/' too, and '?' for one;
-- whatever is below what it means is meant, too.
create or replace function kiwi.chosen_documents(workspace_number integer, filter jsonb) returns bigint[]
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set jit = off
    as $$
declare
    glob text := replace(replace(replace(rtrim(filter ->> 'path', '/'), '!', '!!'), '%', '!%'), '_', '!_');
begin
    glob := translate(nullif(glob, ''), '*?', '%_');
    if filter = '{}' and not exists (
        select from kiwi.signers as s where s.status = 'compromised' and exists (
            select from kiwi.documents as d where d.signer = s.key_id and d.workspace_id = workspace_number
        )
    ) then
        return null;
    end if;
    return array(
        select d.document_id
        from kiwi.documents as d
        join kiwi.signers as s on s.key_id = d.signer
        where d.workspace_id = workspace_number and s.status <> 'compromised'
            and (filter ->> 'item_type' is null or filter ->> 'item_type' = 'document')
            -- one text, or a list that it is among
            and (filter -> 'file_type' is null or filter -> 'file_type' @> (d.metadata -> 'file_type'))
            and (filter ->> 'service' is null or d.metadata ->> 'service' = filter ->> 'service')
            and (filter ->> 'domain' is null or d.metadata ->> 'domain' = filter ->> 'domain')
            and (filter ->> 'category' is null or d.metadata ->> 'category' = filter ->> 'category')
            and (filter ->> 'author' is null or d.metadata ->> 'author' = filter ->> 'author')
            and (filter -> 'tags' is null or d.metadata -> 'tags' @> (filter -> 'tags'))
            and (filter ->> 'namespace' is null or split_part(d.path, '/', 1) = filter ->> 'namespace')
            and (glob is null or d.path like glob escape '!' or d.path like glob || '/%' escape '!')
            and (filter ->> 'signer' is null or filter ->> 'signer' in (s.principal, s.key_id))
            and (filter ->> 'since' is null or d.signed_at >= (filter ->> 'since')::timestamptz)
    );
end
$$;
