create or replace trigger admit before insert on kiwi.item_versions
    for each row execute function kiwi.admit_version();
create or replace trigger keep before update on kiwi.item_versions
    for each row execute function kiwi.keep_version();
create or replace trigger never_deleted before delete on kiwi.item_versions
    for each row execute function kiwi.append_only();
create or replace trigger never_truncated before truncate on kiwi.item_versions
    for each statement execute function kiwi.append_only();
-- ALWAYS: a session that replays a replication stream passes them too.
alter table kiwi.item_versions enable always trigger admit;
alter table kiwi.item_versions enable always trigger keep;
alter table kiwi.item_versions enable always trigger never_deleted;
alter table kiwi.item_versions enable always trigger never_truncated;
