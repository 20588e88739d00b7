"""Registries to test against: one server a test run, a migrated template, clones of it for tests or modules.

The server is an embedded one of the run's own, or the one that ``KIWI_TEST_REGISTRY_URL`` names, as a superuser.
There, databases get names that nobody else has and are dropped, and so are the roles that the run was first to make.
A server of the run's own is made fast by `make_fast`: nothing on it outlives the run, so nothing need survive a crash.
"""

from __future__ import annotations

import atexit
import itertools
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from kiwi_rag.registry import server
from kiwi_rag.registry.migrate import migrate
from kiwi_rag.signing.trust import Signer
from tests.conformance.items import KEY, REGISTRY
from tests.once import copy_of_cluster, made_once

ADA = Signer("ada@acme", KEY.public_key)
ROLES = (
    "authenticator",
    "kiwi_publisher",
    "kiwi_indexer",
    "kiwi_admin",
    "anon",
    "authenticated",
    "service_role",
    "kiwi_owner",
)
_FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "64MB",
    "checkpoint_timeout": "1h",
    "max_wal_size": "4GB",
    "autovacuum": "off",
}
_MIGRATED = "kiwi_test_migrated"
_numbers = itertools.count()
_run = f"kiwi_test_{os.getpid()}_{secrets.token_hex(4)}"


@cache
def admin_url() -> str:
    """Return the URL of the server's own database, having started the server if it is the run's own."""
    given = os.environ.get("KIWI_TEST_REGISTRY_URL", "")
    if given:
        _drop_new_roles_at_exit(given)
        return given
    directory = Path(tempfile.mkdtemp(prefix="kiwi-test-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    copy_of_cluster(made_once("sql", _make) / "data", directory / "data")
    atexit.register(server.stop, directory)
    return server.start(directory)


def _make(directory: Path) -> None:
    """Make a cluster with a migrated database."""
    url = make_fast(directory)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(_MIGRATED)))
    migrate(_other(url, _MIGRATED), audience=REGISTRY)
    server.stop(directory)


def make_fast(directory: Path) -> str:
    """Start a server for `directory` without the work that protects data from a crash; return its URL."""
    with psycopg.connect(server.start(directory), autocommit=True) as connection:
        for name, value in _FAST.items():
            connection.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    server.stop(directory)
    return server.start(directory)


def url_of(database: str) -> str:
    """Return the URL of another database on the server."""
    return _other(admin_url(), database)


def _other(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def name_of(url: str) -> str:
    """Return the name of the database at `url`, for a clone of it."""
    return urlsplit(url).path.removeprefix("/")


@cache
def template(audience: str = REGISTRY, signers: tuple[Signer, ...] = (ADA,)) -> str:
    """Make the migrated database that tests clone, with `signers` enrolled for everything."""
    name = f"{_run}_template_{next(_numbers)}"
    if audience == REGISTRY and not os.environ.get("KIWI_TEST_REGISTRY_URL"):
        _admin("create database {} template {} strategy file_copy", name, _MIGRATED)
    else:
        _admin("create database {}", name)
        atexit.register(_drop, name)
        migrate(url_of(name), audience=audience)
    with psycopg.connect(url_of(name)) as connection:
        for signer in signers:
            connection.execute("select public.enrol_signer(%s, %s, '{*}')", [signer.public_key.hex(), signer.principal])
    return name


@contextmanager
def database(like: str = "") -> Iterator[str]:
    """Yield the URL of a fresh database: a clone of `like`, or an empty one."""
    name = f"{_run}_{next(_numbers)}"
    _admin("create database {} template {} strategy file_copy", name, like or "template1")
    try:
        yield url_of(name)
    finally:
        _drop(name)


@contextmanager
def processor_limit(connection: psycopg.Connection, seconds: float) -> Iterator[None]:
    """Fail when the connection's server process spends more processor time than that; time it waits does not count."""
    begun = processor_seconds(connection)
    yield
    assert processor_seconds(connection) - begun < seconds


def processor_seconds(connection: psycopg.Connection) -> float:
    """Read the time from /proc, in nanoseconds; where that does not know the process, the clock has to do."""
    try:
        told = Path(f"/proc/{connection.info.backend_pid}/schedstat").read_text(encoding="ascii")
    except OSError:
        return time.monotonic()
    return int(told.split()[0]) / 1e9 or time.monotonic()


@pytest.fixture(scope="module")
def module_url() -> Iterator[str]:
    """The URL of one registry for all tests of a module: for tests whose writes no other of them can see."""
    with database(like=template()) as fresh:
        yield fresh


def _drop(name: str) -> None:
    _admin("drop database if exists {} with (force)", name)


def _admin(statement: str, *names: str) -> None:
    _admins_connection().execute(sql.SQL(statement).format(*map(sql.Identifier, names)))  # type: ignore[arg-type]


@cache
def _admins_connection() -> psycopg.Connection:
    """One for all: opening a connection takes half as long as making a database."""
    return psycopg.connect(admin_url(), autocommit=True)


def _drop_new_roles_at_exit(url: str) -> None:
    with psycopg.connect(url) as connection:
        there = {row[0] for row in connection.execute("select rolname from pg_roles")}
    for role in reversed([role for role in ROLES if role not in there]):
        atexit.register(_drop_role, role)


def _drop_role(role: str) -> None:
    with suppress(psycopg.errors.DependentObjectsStillExist):  # another run on this server still needs it
        _admin("drop role if exists {}", role)
