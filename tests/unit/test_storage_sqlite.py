"""SQLite: how a database is opened, what a transaction leaves, and what each result code is called."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest

from kiwi_rag.errors import PinnedStateDamaged, StoreBusy, StoreCorrupt, StoreError, StoreFull, UsageError
from kiwi_rag.storage import sqlite
from kiwi_rag.storage.sqlite import closed_on_error, connect, move_database_aside, transaction, translate_sqlite_errors
from kiwi_rag.stores.local.session import catalog_errors


def damaged(error: Exception) -> StoreError:
    return PinnedStateDamaged(str(error))


def test_a_full_database_is_store_full(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite3"
    connection = connect(path)
    connection.execute("PRAGMA max_page_count = 4")
    connection.execute("CREATE TABLE t (x)")
    with pytest.raises(StoreFull), catalog_errors(path):
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    connection.close()


def test_a_database_is_opened_with_these_settings(tmp_path: Path) -> None:
    names = ("journal_mode", "synchronous", "foreign_keys", "trusted_schema", "query_only")

    def settings(connection: sqlite3.Connection) -> list[object]:
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
        connection.close()
        return found

    assert settings(connect(tmp_path / "a")) == ["wal", 2, 1, 0, 0]
    assert settings(connect(tmp_path / "a", readonly=True)) == ["wal", 2, 1, 0, 1]
    assert settings(connect(tmp_path / "b", wal=False)) == ["delete", 2, 1, 0, 0]
    assert settings(connect(tmp_path / "c", synchronous="NORMAL")) == ["wal", 1, 1, 0, 0]


def test_a_database_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []

    class Counted(sqlite3.Connection):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            opened.append(self)

    monkeypatch.setattr(sqlite.sqlite3, "connect", Counted)
    connect(tmp_path / "a").close()
    assert len(opened) == 1


def test_a_connection_that_cannot_be_prepared_is_closed(tmp_path: Path) -> None:
    connection = connect(tmp_path / "a")
    with pytest.raises(ValueError, match="not ours"), closed_on_error(connection):
        raise ValueError("not ours")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
    (tmp_path / "b").write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(sqlite3.DatabaseError):
        connect(tmp_path / "b")


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    connection = connect(tmp_path / "a")
    connection.execute("CREATE TABLE t (x)")
    with pytest.raises(ZeroDivisionError), transaction(connection):
        connection.execute("INSERT INTO t VALUES (1)")
        raise ZeroDivisionError
    assert not connection.in_transaction
    with transaction(connection):
        connection.execute("INSERT INTO t VALUES (2)")
    assert connection.execute("SELECT x FROM t").fetchall() == [(2,)]
    connection.close()


def test_each_code_has_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.01)
    first, second = connect(tmp_path / "a"), connect(tmp_path / "a")
    first.execute("CREATE TABLE t (x UNIQUE)")
    with transaction(first):
        with pytest.raises(StoreBusy, match="stayed locked"), translate_sqlite_errors(tmp_path / "a", damaged):
            second.execute("BEGIN IMMEDIATE")
        first.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(StoreError, match="cannot use") as wrong, translate_sqlite_errors(tmp_path / "a", damaged):
        first.execute("SELECT nothing FROM nowhere")
    assert not isinstance(wrong.value, PinnedStateDamaged)
    with pytest.raises(PinnedStateDamaged), translate_sqlite_errors(tmp_path / "a", damaged):
        first.execute("INSERT INTO t VALUES (1)")
    first.close()
    second.close()
    with pytest.raises(StoreError, match="closed") as closed, translate_sqlite_errors(tmp_path / "a", damaged):
        first.execute("SELECT 1")
    assert not isinstance(closed.value, PinnedStateDamaged)
    (tmp_path / "b").write_bytes(b"no database" * 100)
    with pytest.raises(PinnedStateDamaged), translate_sqlite_errors(tmp_path / "b", damaged):
        connect(tmp_path / "b")
    with pytest.raises(StoreCorrupt), catalog_errors(tmp_path / "b"):
        connect(tmp_path / "b")
    (tmp_path / "c").mkdir()
    with pytest.raises(StoreError, match="cannot use") as folder, translate_sqlite_errors(tmp_path / "c", damaged):
        connect(tmp_path / "c")
    assert "owner" in folder.value.hint


def test_the_file_systems_errors_are_translated_too(tmp_path: Path) -> None:
    for code, kind in ((errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EROFS, StoreError)):
        with pytest.raises(kind) as raised, translate_sqlite_errors(tmp_path, damaged):
            raise OSError(code, "it said no")
        assert isinstance(raised.value, StoreFull) == (kind is StoreFull)
    with pytest.raises(UsageError), catalog_errors(tmp_path):
        "\udc80".encode()


def test_a_database_is_moved_aside_with_its_log_and_never_over_another(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert move_database_aside(path, "damaged") is None
    for number in (1, 2):
        for suffix in ("", "-wal", "-shm"):
            (tmp_path / f"a{suffix}").write_text(str(number))
        assert move_database_aside(path, "damaged") == tmp_path / f"a.damaged-{number}"
    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == {
        "a.damaged-1": "1", "a.damaged-1-wal": "1", "a.damaged-2": "2", "a.damaged-2-wal": "2",
    }  # fmt: skip
    (tmp_path / "a-wal").write_text("of no database")
    assert move_database_aside(path, "damaged") is None
    assert not (tmp_path / "a-wal").exists()
