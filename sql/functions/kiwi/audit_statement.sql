-- Records what became of an item. Of a private one the record says nothing but that there was something: more people
-- read the log than the item.
create or replace function kiwi.audit_statement(event text, stored kiwi_private.all_statements, reason text default null)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    as $$
begin
    if stored.owner_key = '' then
        perform kiwi.append_audit(
            event, format('%s:%s@%s', stored.item_type, stored.item_id, stored.version), stored.digest, stored.signer,
            jsonb_strip_nulls(jsonb_build_object('reason', reason))
        );
    else
        perform kiwi.append_audit('private', '', '', '');
    end if;
end
$$;
