-- Puts a public statement in the place of the same one that its owner kept private. Its passages go along, as far as
-- public collections are there for them. The caller holds the draft: see lock_draft.
create or replace function kiwi.replace_draft(draft kiwi_private.all_statements, stored kiwi_private.all_statements)
    returns void
    language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform kiwi.lock_audit(); -- record_unread may follow
    perform kiwi.lock_index();
    insert into kiwi_private.all_passages (
        passage_id, collection_id, dimension, statement_id, ordinal, file, kind, text, context, heading, start_line, end_line,
        length, terms, frequencies, embedding
    )
    select nextval('kiwi.passage_number'), c.collection_id, c.dimension, stored.sequence, e.ordinal, e.file, e.kind,
        e.text, e.context, e.heading, e.start_line, e.end_line, e.length, e.terms, e.frequencies, e.embedding
    from kiwi_private.passages as e
    join kiwi_private.collections as own on own.collection_id = e.collection_id
    join kiwi_private.collections as c on c.owner_key = '' and c.fingerprint = own.fingerprint
    where e.statement_id = draft.sequence
    order by e.ordinal
    on conflict do nothing;
    delete from kiwi_private.statements as v where v.sequence = draft.sequence;
    perform kiwi.refresh_items(array[stored.item_type], array[stored.folded_id]);
end $$;
