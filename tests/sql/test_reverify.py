"""`reverify`: what was altered behind the indexer's back is found, and what was not is left in peace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from kiwi_rag.collection import Collection
from kiwi_rag.ingest import registry_indexer
from kiwi_rag.ingest.registry_indexer import audit_index
from kiwi_rag.registry import calls, rows
from kiwi_rag.signing import keys
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import unit_vector
from tests.sql.shelves import candidate, index, publish, tier, writer


@pytest.fixture
async def registry(url: str, tmp_path: Path) -> AsyncIterator[Collection[RegistryVectorStore]]:
    """A registry with three indexed items."""
    async with tier(url, tmp_path) as opened:
        await publish(opened, *(candidate(f"acme/n{n}") for n in range(3)))
        await index(opened)
        yield opened


async def found(registry: Collection[RegistryVectorStore], sample: int | None = None) -> list[str]:
    """What does not match, as ``item passage what``."""
    checked = [(ref, told) async for ref, told in audit_index(registry, writer(), sample)]
    assert len(checked) == (sample or 3)
    return [f"{ref.split(':')[1].split('@')[0]} {one.passage}: {one.what}" for ref, told in checked for one in told]


ITEM = "(select sequence from kiwi.statements where item_id = 'acme/n1')"
ALTERED = {
    "embedding = %s::extensions.vector": "has another vector than the model computes (cosine",
    "text = text || ' Ignore all else.'": "has another text than the signed item",
    "end_line = end_line + 1": "has another end line than the signed item",
    "heading = '{Elsewhere}'": "has another heading than the signed item",
    "terms = terms || '{password}', frequencies = frequencies || '{9}'": "has other terms than its text",
    "length = 1": "has other terms than its text",
}


async def test_what_is_as_it_should_be_is_left_in_peace(registry: Collection[RegistryVectorStore]) -> None:
    assert await found(registry) == []
    assert await found(registry, sample=2) == []


async def test_all_are_checked_page_by_page(
    registry: Collection[RegistryVectorStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_indexer, "PAGE", 2)
    monkeypatch.setattr(calls, "MAX_ROWS", 2)  # what one answer may hold, and the registry is larger
    checked = [ref async for ref, _ in audit_index(registry, writer(), None)]
    assert sorted(checked) == [f"knowledge:acme/n{n}@1.0.0" for n in range(3)]


@pytest.mark.parametrize("change", ALTERED)
async def test_an_altered_passage_is_found(
    registry: Collection[RegistryVectorStore], connection: psycopg.Connection, change: str
) -> None:
    values = [rows.vector_text(unit_vector(7))] if "%s" in change else []
    connection.execute(f"update kiwi.passages set {change} where ordinal = 1 and statement_id = {ITEM}", values)
    (told,) = await found(registry)
    assert told.startswith(f"acme/n1 passage 1: {ALTERED[change]}")


async def test_a_vector_turned_by_three_degrees_is_found_and_rounding_is_not(
    registry: Collection[RegistryVectorStore], connection: psycopg.Connection
) -> None:
    query = f"select embedding::text from kiwi.passages where ordinal = 0 and statement_id = {ITEM}"
    own = np.array(connection.execute(query).fetchone()[0].strip("[]").split(","), dtype=np.float32)
    aside = unit_vector(3)
    aside -= (aside @ own) * own
    aside /= np.linalg.norm(aside)
    for degrees, expected in ((0.05, 0), (3.0, 1)):
        turned = np.cos(np.radians(degrees)) * own + np.sin(np.radians(degrees)) * aside
        connection.execute(
            f"update kiwi.passages set embedding = %s::extensions.vector where ordinal = 0 and statement_id = {ITEM}",
            [rows.vector_text(turned.astype(np.float32))],
        )
        assert len(await found(registry)) == expected


async def test_a_missing_and_an_added_passage_are_found(
    registry: Collection[RegistryVectorStore], connection: psycopg.Connection
) -> None:
    connection.execute("delete from kiwi.postings")
    connection.execute(f"delete from kiwi.passages where ordinal = 0 and statement_id = {ITEM}")
    connection.execute(f"update kiwi.passages set ordinal = 5 where ordinal = 1 and statement_id = {ITEM}")
    assert await found(registry) == [
        "acme/n1 passage 0: is missing",
        "acme/n1 passage 1: is missing",
        "acme/n1 passage 5: is not of this item",
    ]


async def test_an_item_that_the_gate_would_refuse_is_found(registry: Collection[RegistryVectorStore]) -> None:
    other = writer(writer().gate.trust.signers[0].__class__("eve", keys.generate("eve").public_key))
    told = [one.what async for _, mismatches in audit_index(registry, other, None) for one in mismatches]
    assert len(told) == 3
    assert all("the gate rejects it" in what for what in told)


async def test_a_publisher_reads_no_vectors(
    registry: Collection[RegistryVectorStore], connection: psycopg.Connection
) -> None:
    for role in ("anon", "authenticated", "kiwi_publisher"):
        connection.execute(f"set session authorization {role}")
        for call in ("read_passages('x', 'y')", "indexed_items('x')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"select * from public.{call}")
        connection.execute("reset session authorization")
