"""The audit log: append-only, chained, and every break is named."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
from pathlib import Path

import pytest

from kiwi_rag.errors import AuditBroken
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.local.ownership import CATALOG_NAME
from kiwi_rag.validation.audit import AuditEvent, AuditHead, AuditRecord, seal_record, verify_records

UNLOCK = "DROP TRIGGER audit_no_update; DROP TRIGGER audit_no_delete;"


def chain(count: int) -> list[AuditRecord]:
    made: list[AuditRecord] = []
    head = AuditHead()
    for number in range(count):
        event = AuditEvent("admitted", "r", "d", "k", {"n": number})
        record = seal_record(head, "2026-03-01T00:00:00+00:00", event)
        made.append(record)
        head = AuditHead(record.seq, record.hash)
    return made


def test_a_whole_chain_verifies_and_gives_its_head() -> None:
    records = chain(5)
    assert verify_records(records) == AuditHead(5, records[-1].hash)
    assert verify_records(records[2:], AuditHead(2, records[1].hash)).seq == 5
    assert verify_records([]) == AuditHead()


@pytest.mark.parametrize("field", ["at", "event", "ref", "digest", "key_id", "details"])
def test_an_altered_record_is_named(field: str) -> None:
    records = chain(5)
    records[2] = dataclasses.replace(records[2], **{field: {"n": 9} if field == "details" else "other"})
    with pytest.raises(AuditBroken, match="record 3: it was altered"):
        verify_records(records)


def test_a_missing_and_a_moved_record_are_named() -> None:
    records = chain(5)
    with pytest.raises(AuditBroken, match="record 3: it is missing"):
        verify_records([*records[:2], *records[3:]])
    forged = seal_record(AuditHead(2, "1" * 64), "t", AuditEvent("e", "r", "d", "k", {}))
    with pytest.raises(AuditBroken, match="record 3: it does not follow"):
        verify_records([*records[:2], forged])


async def test_gathered_records_are_written_together_even_when_the_block_fails(tmp_path: Path) -> None:
    store = LocalVectorStore(tmp_path, "owner")
    store.audit.append(AuditEvent("admitted", "document:a", "d", "k", {}))
    with pytest.raises(ValueError), store.audit.together() as sink:
        sink.append(AuditEvent("admitted", "document:b", "d", "k", {}))
        assert len(store.audit.newest()) == 1
        sink.append(AuditEvent("rejected", "document:c", "", "", {"findings": ["f"]}))
        raise ValueError
    assert [r.ref for r in store.audit.newest()] == ["document:a", "document:b", "document:c"]
    assert store.audit.verify_chain().seq == 3
    await store.close()


async def test_of_records_that_are_written_together_none_is_written_alone(tmp_path: Path) -> None:
    store = LocalVectorStore(tmp_path, "owner")
    with pytest.raises(ValueError, match="unsupported"), store.audit.together() as sink:
        sink.append(AuditEvent("admitted", "document:a", "d", "k", {}))
        sink.append(AuditEvent("admitted", "document:b", "d", "k", {"no": object()}))
    assert store.audit.newest() == []
    await store.close()


async def test_the_log_is_kept_in_order(tmp_path: Path) -> None:
    store = LocalVectorStore(tmp_path, "owner")
    for number in range(5):
        store.audit.append(AuditEvent("admitted", f"directive:acme/{number}", "d", "k", {"é": [number, None]}))
    assert [r.seq for r in store.audit.newest(since_seq=2, limit=2)] == [4, 5]
    assert store.audit.newest()[4].details == {"é": [4, None]}
    assert store.audit.verify_chain().seq == 5
    await store.close()


async def test_two_stores_append_to_one_chain(tmp_path: Path) -> None:
    stores = [LocalVectorStore(tmp_path, "owner") for _ in range(2)]
    stores[0].audit.append(AuditEvent("first", "", "", "", {}))

    def append(store: LocalVectorStore) -> None:
        for _ in range(25):
            store.audit.append(AuditEvent("refused", "r", "d", "k", {}))

    threads = [threading.Thread(target=append, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores[0].audit.verify_chain().seq == 51
    for store in stores:
        await store.close()


@pytest.mark.parametrize("statement", ["UPDATE audit SET event = 'x'", "DELETE FROM audit"])
async def test_sql_cannot_change_the_log(tmp_path: Path, statement: str) -> None:
    store = LocalVectorStore(tmp_path, "owner")
    store.audit.append(AuditEvent("admitted", "r", "d", "k", {}))
    with sqlite3.connect(tmp_path / CATALOG_NAME) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)
    await store.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE audit SET ref = 'other' WHERE seq = 2", "record 2: it was altered"),
        ("DELETE FROM audit WHERE seq = 2", "record 2: it is missing"),
        ("DELETE FROM audit WHERE seq = 4", "record 4: records up to 4 were removed"),
        ("UPDATE audit SET details = 'not json' WHERE seq = 2", "record 2"),
        ("UPDATE audit SET previous = 'zz' WHERE seq = 2", "record 2"),
    ],
)
async def test_tampering_below_the_triggers_is_named(tmp_path: Path, statement: str, message: str) -> None:
    store = LocalVectorStore(tmp_path, "owner")
    for _ in range(4):
        store.audit.append(AuditEvent("admitted", "r", "d", "k", {}))
    with sqlite3.connect(tmp_path / CATALOG_NAME) as connection:
        connection.executescript(UNLOCK)
        connection.execute(statement)
    with pytest.raises(AuditBroken, match=message):
        store.audit.verify_chain()
    assert any(message in problem for problem in await store.check())
    await store.close()
