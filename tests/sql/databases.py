"""Registries to test against: one embedded server a test run, a migrated template, a clone of it for each test."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg

from kiwi_rag.registry import server
from kiwi_rag.registry.migrate import migrate
from kiwi_rag.signing.trust import Signer
from tests.conformance.items import KEY, REGISTRY

ADA = Signer("ada@acme", KEY.public_key)
_numbers = itertools.count()


@cache
def admin_url() -> str:
    """Start the server; return the URL of its own database. Stopped and removed when the run ends."""
    directory = Path(tempfile.mkdtemp(prefix="kiwi-test-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(server.stop, directory)
    return server.start(directory)


def url_of(database: str) -> str:
    """Return the URL of another database on the server."""
    return admin_url().replace("@/postgres?", f"@/{database}?")


@cache
def template() -> str:
    """Make the migrated database that tests clone: named `REGISTRY`, with `ADA` enrolled for everything."""
    _admin("create database kiwi_template")
    migrate(url_of("kiwi_template"), audience=REGISTRY)
    with psycopg.connect(url_of("kiwi_template")) as connection:
        connection.execute("select public.enrol_signer(%s, %s, '{*}')", [ADA.public_key.hex(), ADA.principal])
    return "kiwi_template"


@contextmanager
def database(like: str = "") -> Iterator[str]:
    """Yield the URL of a fresh database: a clone of `like`, or an empty one."""
    name = f"kiwi_test_{next(_numbers)}"
    _admin(f"create database {name}" + (f" template {like}" if like else ""))
    yield url_of(name)
    _admin(f"drop database {name} with (force)")


def _admin(statement: str) -> None:
    with psycopg.connect(admin_url(), autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]
