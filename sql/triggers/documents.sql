create or replace trigger admit before insert on kiwi.documents
    for each row execute function kiwi.admit_document();
create or replace trigger keep before update on kiwi.documents
    for each row execute function kiwi.keep_document();
create or replace trigger forget after delete on kiwi.documents
    for each row execute function kiwi.forget_postings();
create or replace trigger mark after delete on kiwi.documents
    for each row execute function kiwi.mark_document();
create or replace trigger signed_when_new after insert on kiwi.document_passages
    referencing new table as fresh for each statement execute function kiwi.admit_document_passages();
create or replace trigger signed_when_changed after update on kiwi.document_passages
    referencing new table as fresh for each statement execute function kiwi.admit_document_passages();
-- ALWAYS: a session that replays a replication stream passes them too.
alter table kiwi.documents enable always trigger admit;
alter table kiwi.documents enable always trigger keep;
alter table kiwi.documents enable always trigger forget;
alter table kiwi.documents enable always trigger mark;
alter table kiwi.document_passages enable always trigger signed_when_new;
alter table kiwi.document_passages enable always trigger signed_when_changed;
