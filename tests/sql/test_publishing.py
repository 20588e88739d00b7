"""`PublishRun`: what one file gets wrong stops no other, and what is in the registry has its receipt."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psycopg
import pytest

from kiwi_rag.collection import RANKS, Collection
from kiwi_rag.errors import EmbeddingError, RefusedTooOften
from kiwi_rag.formats.source import ItemCandidate
from kiwi_rag.ingest import IngestContext, publication
from kiwi_rag.ingest.publication import NotPublished, Outcome, Published, PublishRun
from kiwi_rag.signing import keys
from kiwi_rag.signing.trust import Signer
from kiwi_rag.stores.postgres import RegistryVectorStore
from kiwi_rag.usecases import item_files
from tests.sql.databases import ADA
from tests.sql.shelves import SmallModel, candidate, index, refs, tier, writer
from tests.sql.test_refusal_limit import set_minute

if TYPE_CHECKING:
    from kiwi_rag.model import Vector


class Choking(SmallModel):
    """A model that fails at texts that hold a word."""

    async def documents(self, texts: Sequence[str]) -> Sequence[Vector]:
        if any("acme/n1" in text for text in texts):
            raise EmbeddingError("the model cannot read this")
        return await super().documents(texts)


async def published(
    to: Collection[RegistryVectorStore],
    root: Path,
    *candidates: ItemCandidate,
    by: IngestContext | None = None,
    report: Callable[[str], None] | None = None,
) -> list[Outcome]:
    """Write signed items as files, publish them, and return the outcomes."""
    sources = [item_files.place_item(root, one.envelope, one.files) for one in candidates]
    place = Collection("project", RANKS["project"], to.store, to.policy, to.trust, to.audience, to.audit, root)
    run = PublishRun(place, to, by or writer(), report=report)
    return [outcome async for outcome in run.publish(sources)]


async def test_a_model_that_fails_at_one_item_leaves_every_receipt(url: str, tmp_path: Path) -> None:
    async with tier(url, tmp_path) as registry:
        many = [candidate(f"acme/n{n}") for n in range(5)]
        outcomes = await published(registry, tmp_path / ".ai", *many, by=writer(model=Choking()))
        assert [(one.ref.item_id, one.waits) for one in outcomes if isinstance(one, Published)] == [
            ("acme/n0", False),
            ("acme/n1", True),
            ("acme/n2", False),
            ("acme/n3", False),
            ("acme/n4", False),
        ]
        assert refs(await index(registry)) == ["acme/n1"]


@pytest.mark.parametrize(("table", "are_there"), [("blobs", 2), ("passages", 3)])
async def test_an_item_at_which_the_registry_fails_stops_no_other(
    url: str, tmp_path: Path, connection: psycopg.Connection, table: str, are_there: int
) -> None:
    column = {"blobs": "convert_from(new.content, 'UTF8')", "passages": "new.text"}[table]
    connection.execute(f"""
        create function kiwi.fail() returns trigger language plpgsql as $$ begin
            raise exception using errcode = 'XX000', message = 'a broken page';
        end $$;
        create trigger fail after insert on kiwi.{table}
        for each row when ({column} like '%poison%') execute function kiwi.fail()
    """)
    async with tier(url, tmp_path) as registry:
        many = [candidate("acme/n0"), candidate("acme/n1", "The pump of poison."), candidate("acme/n2")]
        outcomes = await published(registry, tmp_path / ".ai", *many)
        assert len(outcomes) == 3
        receipts = [one for one in outcomes if isinstance(one, Published)]
        assert len(receipts) == are_there
        assert [one.ref.item_id for one in receipts if not one.waits] == ["acme/n0", "acme/n2"]
        if table == "blobs":
            assert isinstance(outcomes[1], NotPublished)
            assert "a broken page" in outcomes[1].error.message


async def test_a_role_that_may_not_index_leaves_all_to_the_indexer(
    url: str, tmp_path: Path, connection: psycopg.Connection
) -> None:
    connection.execute("revoke execute on function public.claim_item from kiwi_indexer")
    async with tier(url, tmp_path) as registry:
        outcomes = await published(registry, tmp_path / ".ai", *(candidate(f"acme/n{n}") for n in range(4)))
        assert [one.waits for one in outcomes] == [True] * 4


async def test_a_version_that_no_vectors_are_wanted_of_waits_for_none(url: str, tmp_path: Path) -> None:
    async with tier(url, tmp_path) as registry:
        one = candidate("acme/x")
        (first,) = await published(registry, tmp_path / ".ai", one)
        assert (first.receipt.already_published, first.waits) == (False, False)
        await registry.store.delete(first.ref)
        (again,) = await published(registry, tmp_path / ".ai", one)
        assert (again.receipt.already_published, again.waits) == (True, False)
        assert (await registry.store.status()).passages == 0


@pytest.fixture
def refusing(connection: psycopg.Connection) -> psycopg.Connection:
    """A registry that reads two refused calls of a login within a minute, and took no key but that of `KEY`."""
    connection.execute("select public.set_refusal_limit(2)")
    set_minute(connection, 0)
    return connection


def some_refused() -> tuple[list[ItemCandidate], IngestContext]:
    """Seven items of a signer that the registry does not know, three of one that it knows, and a gate for both."""
    other = keys.generate("other")
    many = [candidate(f"acme/n{n}", key=other) for n in range(7)] + [candidate(f"acme/x{n}") for n in range(3)]
    return many, writer(ADA, Signer("other@acme", other.public_key))


async def test_after_too_many_refusals_the_run_goes_on_in_the_next_minute(
    url: str, tmp_path: Path, refusing: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes, notices = itertools.count(1), list[str]()

    async def pause(seconds: float) -> None:
        assert 1 <= seconds <= 60
        set_minute(refusing, next(minutes))

    monkeypatch.setattr(publication, "asyncio", SimpleNamespace(sleep=pause))
    many, by = some_refused()
    async with tier(url, tmp_path) as registry:
        registry = replace(registry, trust=lambda: by.gate.trust)
        outcomes = await published(registry, tmp_path / ".ai", *many, by=by, report=notices.append)
    refused, receipts = outcomes[:7], outcomes[7:]
    assert [getattr(one.error, "state", one.error) for one in refused] == ["KW002"] * 7
    assert all(isinstance(one, Published) for one in receipts)
    assert notices
    assert re.fullmatch(r"over 2 calls of this login were refused within this minute; going on in \d+ s", notices[0])


@pytest.mark.parametrize("patient", [True, False])
async def test_a_run_waits_a_few_minutes_and_not_for_ever(
    url: str, tmp_path: Path, refusing: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, patient: bool
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:  # in each minute somebody else uses up what may be refused
        pauses.append(seconds)

    monkeypatch.setattr(publication, "asyncio", SimpleNamespace(sleep=pause))
    many, by = some_refused()
    for _ in range(2):
        refusing.execute("select public.publish_item('[]', '{}')")
    async with tier(url, tmp_path) as registry:
        report = [].append if patient else None
        (outcome,) = await published(registry, tmp_path / ".ai", many[-1], by=by, report=report)
    assert isinstance(outcome, NotPublished)
    assert isinstance(outcome.error, RefusedTooOften)
    assert len(pauses) == (3 if patient else 0)
