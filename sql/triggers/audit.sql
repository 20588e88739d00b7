create or replace trigger never_changed before update or delete on kiwi.audit
    for each row execute function kiwi.append_only();
create or replace trigger never_truncated before truncate on kiwi.audit
    for each statement execute function kiwi.append_only();
