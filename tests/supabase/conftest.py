"""A Supabase project over a registry of its own, for every test."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from kiwi_rag.registry import server
from kiwi_rag.registry.migrate import migrate
from tests.once import copy_of_cluster, made_once
from tests.sql.databases import database, make_fast, template
from tests.supabase.cli import HOSTED, Cluster, Supabase
from tests.supabase.postgrest import PostgRest, project


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a fresh registry's database, for a connection that may act as any role."""
    with database(like=template()) as fresh:
        yield fresh


@pytest.fixture
def connection(url: str) -> Iterator[psycopg.Connection]:
    """A plain connection to it, each statement a transaction of its own."""
    with psycopg.connect(url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def hosted(url: str) -> Iterator[PostgRest]:
    """The project that serves it."""
    with project(url) as running:
        yield running


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A server on loopback, with the roles of a hosted project."""
    with _listening() as plain:
        with psycopg.connect(plain.socket) as connection:
            connection.execute(HOSTED)
        yield plain


@pytest.fixture(scope="session")
def plain_cluster() -> Iterator[Cluster]:
    """A server on loopback as it comes."""
    with _listening() as plain:
        yield plain


@contextmanager
def _listening() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="kiwi-cli-", ignore_cleanup_errors=True) as folder:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
        copy_of_cluster(made_once("plain", _make_plain) / "data", Path(folder, "data"))
        yield Cluster(Path(folder), server.start(Path(folder), port=port), port)
        server.stop(Path(folder))


def _make_plain(directory: Path) -> None:
    make_fast(directory)
    server.stop(directory)


@pytest.fixture(scope="session")
def pushed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a hosted project onto which the CLI has pushed."""
    Supabase(tmp_path_factory.mktemp("push")).push(cluster.database("pushed"))
    return "pushed"


@pytest.fixture(scope="session")
def migrated(cluster: Cluster) -> str:
    """The name of a hosted project that Kiwi has migrated."""
    migrate(cluster.database("migrated"))
    return "migrated"


@pytest.fixture
def supabase(tmp_path: Path) -> Supabase:
    """The CLI, in a copy of supabase/."""
    return Supabase(tmp_path)
