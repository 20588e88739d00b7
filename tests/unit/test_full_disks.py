"""Reading where nothing can be written, in a process that stays: it goes on with what is written later."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kiwi_rag.errors import StoreError, StoreFull
from kiwi_rag.model import Exchange, Filters
from kiwi_rag.sources.memory.exchanges import ExchangeTable
from kiwi_rag.storage import sqlite
from kiwi_rag.storage.sqlite import ReadOnlyConnection, connect, connect_for_reading
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.local.ownership import CATALOG_NAME
from tests.conformance.items import admission, records
from tests.disks import full_disk, read_only, small_disk

EVERYTHING = Filters()


async def put(store: LocalVectorStore, number: int) -> None:
    await store.put([records(admission(f"acme/item-{number}", f"alpha {number}"), seed=number)])


async def test_a_reader_of_a_full_disk_sees_what_is_written_when_there_is_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        writer, reader = (LocalVectorStore(disk / "vectors", "owner") for _ in range(2))
        await put(writer, 1)
        await writer.close()
        with full_disk(disk):
            assert len(await reader.list(EVERYTHING)) == 1
            assert reader.audit.verify_chain().seq == 0
            with pytest.raises(StoreFull, match="no space left for"):
                await put(reader, 2)
        await put(writer, 2)
        assert len(await reader.list(EVERYTHING)) == 2
        await put(reader, 3)
        assert len(await reader.list(EVERYTHING)) == 3
        for store in (writer, reader):
            await store.close()


def test_a_memory_that_was_read_on_a_full_disk_is_written_when_there_is_space(tmp_path: Path) -> None:
    one, other = (Exchange(name, "s", "How?", "So.", datetime.now(UTC)) for name in ("one", "other"))
    with (
        small_disk(tmp_path / "disk", "4m") as disk,
        closing(ExchangeTable(disk / "memory/exchanges.sqlite3")) as table,
    ):
        table.add([one])
        table.close()
        with full_disk(disk):
            assert table.count() == 1
            with pytest.raises(StoreFull, match="no space left for"):
                table.add([other])
        table.add([other])
        assert table.count() == 2


async def test_another_users_catalog_on_a_read_only_disk_is_not_opened(tmp_path: Path) -> None:
    store = LocalVectorStore(tmp_path / "vectors", "owner")
    await put(store, 1)
    await store.close()
    with read_only(tmp_path):
        other = LocalVectorStore(store.folder, "another owner")
        assert await other.list(EVERYTHING) == []
        await other.close()
        assert len(await store.list(EVERYTHING)) == 1
        await store.close()
    replaced = LocalVectorStore(tmp_path / "other", "owner")
    await put(replaced, 2)
    await replaced.close()
    (store.folder / CATALOG_NAME).write_bytes((replaced.folder / CATALOG_NAME).read_bytes())
    with read_only(tmp_path), pytest.raises(StoreError, match="is of another Kiwi"):
        await store.list(EVERYTHING)


def test_what_is_too_large_to_be_copied_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.sqlite3"
    with closing(connect(path)) as writer:
        writer.execute("CREATE TABLE t (x)")
        left = {name: (tmp_path / name).read_bytes() for name in ("a.sqlite3", "a.sqlite3-wal")}
    for name, data in left.items():
        (tmp_path / name).write_bytes(data)

    def refused() -> sqlite.sqlite3.Connection:
        raise PermissionError(13, "Permission denied")

    with closing(connect_for_reading(path, refused, lambda _: None)) as reader:
        assert isinstance(reader, ReadOnlyConnection)
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (0,)
    monkeypatch.setattr(sqlite, "MAX_COPIED", 100)
    with pytest.raises(StoreError, match="cannot be read where nothing can be written") as caught:
        connect_for_reading(path, refused, lambda _: None)
    assert caught.value.hint == "make its folder writable, or free some space"
