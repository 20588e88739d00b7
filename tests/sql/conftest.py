"""A registry of its own for every test or module, as a store and as a plain connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from kiwi_rag.registry import tuning
from kiwi_rag.registry.pool import Connections
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.sql.databases import database, module_url, template

__all__ = ["module_url"]


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a fresh registry, for a connection that may act as any role."""
    with database(like=template()) as fresh:
        yield fresh


@pytest.fixture
def connection(url: str) -> Iterator[psycopg.Connection]:
    """A plain connection to it, each statement a transaction of its own."""
    with psycopg.connect(url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def shared(module_url: str) -> Iterator[psycopg.Connection]:
    """A plain connection to the module's registry, for tests that write nothing there."""
    with psycopg.connect(module_url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def rolled_back(module_url: str) -> Iterator[psycopg.Connection]:
    """A connection to the module's registry in one transaction, which is undone after the test."""
    with psycopg.connect(module_url) as opened:
        yield opened
        opened.rollback()


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure an index with fewer vectors: for tests of what is built and used, not of how well it was measured."""
    monkeypatch.setattr(tuning, "_SAMPLES", 30)


@pytest.fixture
async def store(url: str) -> AsyncIterator[RegistryVectorStore]:
    """A store over it."""
    opened = RegistryVectorStore(Connections(url))
    yield opened
    await opened.close()
