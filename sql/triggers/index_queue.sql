create or replace trigger enqueue after insert on kiwi.item_versions
    for each row execute function kiwi.enqueue_version();
alter table kiwi.item_versions enable always trigger enqueue;
