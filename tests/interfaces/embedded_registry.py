"""The embedded registry of a test: a copy of one that was made and migrated once a test run.

Its server does not wait for the disk. That loses nothing when a server or a writer is killed, only when the machine
stops, which no test can bring about; commits stay synchronous.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

import psycopg

from kiwi_rag.config import Settings
from kiwi_rag.registry import server
from kiwi_rag.registry.migrate import migrate
from kiwi_rag.registry.server import run
from tests.once import copy_of_cluster, made_once

_initialise = server._initialise
_SETTINGS = "fsync = off\nfull_page_writes = off\nautovacuum = off\nshared_buffers = 16MB\nmin_wal_size = 2MB\n"


def copy_cluster(root: Path) -> None:
    """Put a migrated cluster below `root` where there is none yet; stands in for `server._initialise`."""
    if (root / "data/PG_VERSION").exists():
        return
    with tempfile.TemporaryDirectory(dir=root, prefix="new-", ignore_cleanup_errors=True) as scratch:
        fresh = Path(scratch) / "data"
        copy_of_cluster(made_once("embedded", _make) / "data", fresh)
        fresh.rename(root / "data")


def _drop_templates(url: str) -> None:
    """Drop the databases from which others would be made: two thirds of the files of a copy."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update pg_database set datistemplate = false")
        for name in ("template0", "template1"):
            connection.execute(f"drop database {name}".encode())


def _make(root: Path) -> None:
    options = ["--no-sync", "--wal-segsize=1"]  # a new cluster has whole segments, and every test copies them
    with patch.object(server, "run", lambda command, **given: run([*command, *options], **given)):
        _initialise(root)
    with (root / "data/postgresql.auto.conf").open("a") as settings:
        settings.write(_SETTINGS)
    url = server.start(root)
    migrate(url, audience=Settings().registry_name)
    _drop_templates(url)
    server.stop(root)
