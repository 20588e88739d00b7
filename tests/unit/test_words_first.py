"""Documents are stored by their words and embedded after that: stops, searches and faults between the two."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag import ingest
from kiwi_rag.errors import EmbeddingError, StoreBusy, StoreError, StoreFull
from kiwi_rag.ingest import vectors
from kiwi_rag.ingest.vectors import embed_missing, sort_by_likely_use
from kiwi_rag.render.hits import documents_json, notices
from kiwi_rag.search import hits
from kiwi_rag.sources.source import SyncReport
from kiwi_rag.stores.base import UnembeddedDocument
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.local.ownership import CATALOG_NAME
from tests.workspaces import Yard

GROUP = 16
FILES = 3 * GROUP + 2


class Stopped(BaseException):
    """Ends a run as Ctrl-C does."""


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return filled(tmp_path / "yard")


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "GROUP", GROUP)
    monkeypatch.setattr(vectors, "GROUP", GROUP)


def filled(root: Path, files: int = FILES) -> Yard:
    yard = Yard(root)
    for n in range(files):
        yard.write(f"{n}.md", f"# Buoy {n}\n\nBuoy {n} of the fairway blinks green.\n")
    return yard


async def embed(yard: Yard) -> SyncReport:
    report = SyncReport()
    await embed_missing(yard.tier, yard.embed, report)
    return report


async def stop_after(yard: Yard, groups: int) -> None:
    """Run an index that is stopped once so many groups of vectors are stored."""
    real, stored = yard.store.put_vectors, []

    async def put_vectors(*args: Any) -> None:
        if len(stored) == groups:
            raise Stopped
        stored.append(await real(*args))

    yard.store.put_vectors = put_vectors  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        await yard.index()
    yard.store.put_vectors = real  # type: ignore[method-assign]


def contents(yard: Yard) -> Mapping[tuple[str, int], tuple[str, bytes]]:
    """Return what the catalog has of each passage: its text and its vector."""
    with sqlite3.connect(yard.store.folder / CATALOG_NAME) as connection:
        rows = connection.execute(
            "SELECT item_id, ordinal, text, vector FROM passages JOIN items USING (item_key)"
            " LEFT JOIN vectors USING (passage_key)"
        )
        return {(path, ordinal): (text, vector) for path, ordinal, text, vector in rows}


@pytest.mark.parametrize("groups", [0, 1, 2])
async def test_a_run_that_is_stopped_between_and_in_the_stages_ends_as_a_fresh_one(yard, tmp_path, groups):
    await stop_after(yard, groups)
    status = await yard.store.status()
    assert (status.items, status.unembedded) == (FILES, FILES - groups * GROUP)
    assert await yard.store.check() == ()
    assert yard.states.run_state() == "complete"
    report = await yard.index()
    assert (report.unchanged, report.indexed, report.embedded) == (FILES, [], FILES - groups * GROUP)
    fresh = filled(tmp_path / "fresh")
    await fresh.index()
    assert contents(yard) == contents(fresh)
    assert await yard.store.check() == ()
    assert (await yard.index()).embedded == 0


async def test_vectors_wait_for_another_process_that_writes(yard):
    real, busy = yard.store.put_vectors, [StoreBusy("another process is writing")] * 3

    async def put_vectors(*args: Any) -> None:
        if busy:
            raise busy.pop()
        await real(*args)

    yard.store.put_vectors = put_vectors  # type: ignore[method-assign]
    assert (await yard.index()).embedded == FILES
    busy += [StoreBusy("another process is writing")] * (len(vectors.PAUSES) + 1)
    yard.write("new.md", "# A new buoy\n")
    with pytest.raises(StoreBusy):
        await yard.index()
    assert busy == []


async def test_a_search_before_any_vector_needs_no_model_and_says_so(yard):
    await stop_after(yard, 0)
    yard.embed.fails = EmbeddingError("there is no model")
    reply = await yard.search("buoy 17")
    assert reply.hits[0].path == "17.md"
    assert (reply.embedded, reply.complete, reply.unfinished) == (0, False, False)
    assert (reply.tiers[0].plan, reply.hits[0].parts["alpha"]) == ("words", 0)
    assert documents_json(reply)["embedded"] == 0
    assert notices(reply) == [
        "vectors for 0% of the passages so far, the others are found by words alone;"
        " if no run is under way: kiwi workspace index"
    ]


async def test_a_search_of_a_half_embedded_index_finds_by_both_and_says_how_much_is_embedded(yard, monkeypatch):
    monkeypatch.setattr(hits, "MEASURED_MODEL", "words")
    await stop_after(yard, 1)
    reply = await yard.search("buoy 17")
    assert reply.hits[0].path == "17.md"
    assert reply.embedded == pytest.approx(GROUP / FILES)
    assert notices(reply)[0].startswith("vectors for 32% of the passages")
    assert reply.close is None
    await embed(yard)
    reply = await yard.search("buoy 17")
    assert (reply.embedded, reply.complete, reply.close) == (1, True, True)
    assert not [line for line in notices(reply) if "vectors for" in line]


async def test_a_passage_without_a_vector_is_neither_hidden_nor_favoured(yard):
    """The first of four that match equally well by words is not the one that happens to be embedded, or not."""
    yard.write("near.md", "# Lantern\n\nThe lantern of the old lighthouse burns whale oil.\n")
    yard.write("other.md", "# Lamp\n\nA lantern hangs in the hall of the inn.\n")
    await stop_after(yard, 0)
    by_path = {one.path: one.keys for one in await yard.store.unembedded()}
    passages = await yard.store.passages([key for path in by_path for key in by_path[path] if path != "near.md"])
    texts = await yard.embed.documents([vectors.embedded_text(passage) for passage in passages.values()])
    fingerprint = str(yard.embed.fingerprint)
    await yard.store.put_vectors(passages, dict(zip(passages, texts, strict=True)), fingerprint)
    found = (await yard.search("lantern of the old lighthouse")).hits
    assert [hit.path for hit in found[:2]] == ["near.md", "other.md"]
    assert [hit.parts["cosine"] is None for hit in found[:2]] == [True, False]
    found = (await yard.search("lantern hall inn")).hits
    assert [hit.path for hit in found[:2]] == ["other.md", "near.md"]


def test_documents_are_embedded_in_the_order_of_likely_use():
    changed = {"README.md": "2020", "docs/a.yaml": "2021", "b.md": "2023", "c.rst": "2022"}
    changed |= {"d.py": "2024", "e.java": "2025", "f.yaml": "2026", "sub/readme.txt": "2019"}
    types = {"py": "python", "java": "java", "yaml": "yaml", "md": "markdown"}
    found = [
        UnembeddedDocument(path, types.get(path.rpartition(".")[2], "text"), at, (0,)) for path, at in changed.items()
    ]
    assert [one.path for one in sort_by_likely_use(found)] == [
        "README.md", "sub/readme.txt", "b.md", "c.rst", "docs/a.yaml", "e.java", "d.py", "f.yaml",
    ]  # fmt: skip


async def test_named_files_alone_are_embedded_when_files_are_named(yard):
    await stop_after(yard, 0)
    yard.write("0.md", "# Buoy 0\n\nIt is red now.\n")
    report = await yard.index("0.md")
    assert (report.indexed, report.embedded) == (["0.md"], 1)
    assert (await yard.store.status()).unembedded == FILES - 1


@pytest.mark.parametrize("stage", ["words", "vectors"])
async def test_a_full_disk_in_either_stage_loses_nothing(yard, stage, monkeypatch):
    monkeypatch.setattr("kiwi_rag.ingest.sync.WORDS_GROUP", GROUP)
    if stage == "vectors":
        await stop_after(yard, 0)
    else:
        await yard.store.status()
    with yard.store._session.borrow("write") as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 10}")  # SQLite's own way to say that the disk is full
    with pytest.raises(StoreFull, match="no space left"):
        await yard.index()
    before = await yard.held()
    assert set(before) == set(yard.states.all())
    assert len(before) < FILES if stage == "words" else len(before) == FILES
    yard.store = LocalVectorStore(yard.store.folder, "owner")
    report = await yard.index()
    assert report.unchanged == len(before)
    assert ((await yard.store.status()).unembedded, len(await yard.held())) == (0, FILES)
    assert await yard.store.check() == ()


async def test_a_passage_that_changed_meanwhile_gets_no_vector_of_the_old_text(yard):
    await stop_after(yard, 0)
    (document,) = [one for one in await yard.store.unembedded() if one.path == "7.md"]
    passages = await yard.store.passages(document.keys)
    encoded = await yard.embed.documents(["an old text"])
    yard.write("7.md", "# Another\n")
    await yard.index("7.md")
    await yard.store.put_vectors(passages, dict(zip(passages, encoded, strict=True)), str(yard.embed.fingerprint))
    (passage,) = [vector for (path, _), (_, vector) in contents(yard).items() if path == "7.md"]
    assert passage != encoded[0].tobytes()


async def test_a_workspace_that_was_deleted_is_not_made_anew(yard, tmp_path):
    await stop_after(yard, 0)
    keys = (await yard.store.unembedded())[0].keys
    passages = await yard.store.passages(keys)
    texts = [vectors.embedded_text(passage) for passage in passages.values()]
    encoded = dict(zip(passages, await yard.embed.documents(texts), strict=True))
    yard.root.rename(tmp_path / "aside")
    for call in (yard.store.passages(keys), yard.store.put_vectors(passages, encoded, str(yard.embed.fingerprint))):
        with pytest.raises(StoreError, match="was deleted"):
            await call
    assert not yard.root.exists()


async def test_chroma_gets_a_passage_once_it_has_a_vector(yard):
    yard.store = LocalVectorStore(yard.store.folder, "owner", exact_limit=10)
    await stop_after(yard, 1)
    assert (await yard.search("buoy 17")).hits[0].path == "17.md"
    assert await yard.store.check() == () or "behind" in (await yard.store.check())[0]
    await yard.index()
    assert await yard.store.check() == ()
    assert (await yard.search("buoy 17")).tiers[0].plan == "chroma"


async def test_a_repair_keeps_documents_without_vectors(yard):
    await stop_after(yard, 1)
    with yard.store._session.borrow("write") as connection:
        connection.execute("UPDATE meta SET value = 3 WHERE name = 'vectors'")
    assert await yard.store.check() == ("the collection's statistics differ from a recount",)
    await yard.store.repair()
    status = await yard.store.status()
    assert (status.items, status.unembedded) == (FILES, FILES - GROUP)
    assert await yard.store.check() == ()
