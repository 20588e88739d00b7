"""The catalog's schema moves forward step by step, each step wholly or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from kiwi_rag.errors import StoreError
from kiwi_rag.storage.sqlite import connect
from kiwi_rag.stores.local.session import SCHEMA_VERSION, STEPS, migrate, schema_version


def tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def test_an_older_catalog_is_brought_forward(tmp_path: Path) -> None:
    connection = connect(tmp_path / "x.sqlite3", readonly=False)
    migrate(connection)
    connection.execute("INSERT INTO meta (name, value) VALUES ('kept', 'yes')")
    migrate(connection, (*STEPS, "CREATE TABLE later (x);"))
    assert (SCHEMA_VERSION, schema_version(connection)) == (101, 102)
    assert "later" in tables(connection)
    assert connection.execute("SELECT value FROM meta WHERE name = 'kept'").fetchone() == ("yes",)
    with pytest.raises(StoreError, match="newer Kiwi"):
        migrate(connection)
    connection.close()


def test_a_step_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    connection = connect(tmp_path / "x.sqlite3", readonly=False)
    migrate(connection)
    before = tables(connection)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, (*STEPS, "CREATE TABLE later (x); CREATE TABLE meta (x);"))
    assert not connection.in_transaction
    assert (schema_version(connection), tables(connection)) == (SCHEMA_VERSION, before)
    connection.close()
