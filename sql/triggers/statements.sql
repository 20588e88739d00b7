-- Of public items nothing is ever deleted. ALWAYS: a session that replays a replication stream passes them, too; on the
-- tables that hold the rows, since servers before 15 do not hand that down.
create or replace trigger admit before insert on kiwi_private.all_statements
    for each row execute function kiwi.admit_statement();
create or replace trigger file after insert on kiwi_private.all_statements
    for each row execute function kiwi.file_statement();
create or replace trigger keep before update on kiwi_private.all_statements
    for each row execute function kiwi.keep_statement();
create or replace trigger release_blobs after delete on kiwi_private.all_statements
    for each row execute function kiwi.release_blobs();
create or replace trigger release before delete on kiwi_private.statements
    for each row execute function kiwi.release_statement();
create or replace trigger never_deleted before delete on kiwi.statements
    for each row execute function kiwi.append_only();
create or replace trigger never_truncated before truncate on kiwi.statements
    for each statement execute function kiwi.append_only();
create or replace trigger signed_when_new after insert on kiwi_private.all_passages
    referencing new table as fresh for each statement execute function kiwi.check_passages();
create or replace trigger signed_when_changed after update on kiwi_private.all_passages
    referencing new table as fresh for each statement execute function kiwi.check_passages();
create or replace trigger signed_when_new after insert on kiwi_private.passages
    referencing new table as fresh for each statement execute function kiwi.check_passages();
create or replace trigger signed_when_changed after update on kiwi_private.passages
    referencing new table as fresh for each statement execute function kiwi.check_passages();
create or replace trigger never_changed before update on kiwi_private.all_statement_files
    for each row execute function kiwi.append_only();
create or replace trigger never_changed before update on kiwi_private.all_blobs
    for each row execute function kiwi.append_only();
do $$
declare
    ours record;
begin
    for ours in
        select t.tgrelid::regclass as holder, t.tgname as name from pg_catalog.pg_trigger as t
        join pg_catalog.pg_class as c on c.oid = t.tgrelid
        where not t.tgisinternal and t.tgenabled <> 'A'
            and c.relnamespace in ('kiwi'::regnamespace, 'kiwi_private'::regnamespace)
    loop
        execute format('alter table %s enable always trigger %I', ours.holder, ours.name);
    end loop;
end
$$;
