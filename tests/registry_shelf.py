"""The registry as one of a shelf's tiers: a real one, whose owner may replace its functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from kiwi_rag.collection import RANKS, Collection
from kiwi_rag.registry.pool import Connections
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.postgres import RegistryVectorStore
from kiwi_rag.validation.admission import policy_of
from tests.search_tiers import AUDIENCE, THREE
from tests.sql.databases import database, template


@contextmanager
def registry() -> Iterator[str]:
    """Yield the URL of a fresh registry to which the shelf's signers may publish."""
    with database(like=template(AUDIENCE, THREE.signers)) as url:
        yield url


def registry_tier(url: str, folder: Path) -> Collection[Any]:
    """The registry at `url` as a tier, with its audit log in `folder`."""
    local = LocalVectorStore(folder, "owner")
    store = RegistryVectorStore(Connections(url))
    return Collection("registry", RANKS["registry"], store, policy_of("registry"), lambda: THREE, AUDIENCE, local.audit)


def alter(url: str, statement: str) -> None:
    """Change the registry as its owner."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[arg-type]
