-- A private version that was handed in again: for its owner it becomes public if that is wanted. Nobody else may have it.
create or replace function kiwi.open_to_all(stored kiwi.item_versions, statement jsonb, wanted text, signature bytea)
    returns kiwi.item_versions
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if not kiwi.is_mine(stored.owner_id, stored.owner_name) then
        -- Who only guesses what was signed gets the answer that a wrong guess gets.
        if not kiwi.ed25519_verify(stored.public_key, kiwi.dsse_pae(stored.payload_type, stored.payload), signature) then
            raise check_violation using constraint = 'item_versions_signature'; -- publish_item says what that means
        end if;
        raise exception using
            errcode = 'KW016',
            message = 'this very statement is somebody else''s private item here',
            hint = 'ask its owner to publish it, or publish a statement of your own';
    end if;
    if wanted is distinct from 'public' then
        return stored;
    end if;
    perform kiwi.check_signer(stored.signer, statement);
    perform kiwi.check_version(statement, '');
    update kiwi.item_versions as v set visibility = 'public' where v.sequence = stored.sequence returning * into stored;
    perform kiwi.note_publication('open', stored);
    perform kiwi.refresh_item(stored.item_type, stored.item_id);
    return stored;
end
$$;
