"""Indexing a tier of files: texts encoded once and in order, while others are stored; nothing lost when it breaks."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kiwi_rag.collection import RANKS, Collection
from kiwi_rag.errors import EmbeddingError, StoreFull
from kiwi_rag.formats import parse_item
from kiwi_rag.formats.source import signature_path
from kiwi_rag.ingest import GROUP, JOBS, AdmittedFile, IngestContext, encode_files
from kiwi_rag.ingest.sync import Callbacks, sync
from kiwi_rag.model import Filters, Passage
from kiwi_rag.model.refs import ItemType
from kiwi_rag.signing.statement import signature_file
from kiwi_rag.sources.file_states import FileStates
from kiwi_rag.sources.source import ItemSource, SyncReport
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.validation.admission import policy_of
from kiwi_rag.wordpieces import embedded_text
from tests.conformance.items import admission
from tests.search_tiers import ADA, AUDIENCE, GATE, TRUST, note
from tests.unit.test_embedding_base import Hashing

BODY = "\n\n".join(
    f"## Part {part}\n\n" + "The pump feeds the north basin until the valve shuts. " * 24 for part in "abc"
)


class Counting(Hashing):
    """Keeps what it encoded; fails once `limit` texts were."""

    batch_size = 8

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.threads: set[int] = set()
        self._limit = limit

    def encode(self, texts: Sequence[str]) -> Sequence[np.ndarray]:
        if self._limit is not None and self.seen.total() + len(texts) > self._limit:
            raise EmbeddingError("the model fell over")
        self.seen.update(texts)
        self.threads.add(threading.get_ident())
        return super().encode(texts)


class Project:
    """A folder of signed notes with a local store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tier: Collection[Any]
        self.open()

    def open(self) -> None:
        store = LocalVectorStore(self.root / "vectors", "owner")
        states, policy = FileStates(store.folder, "owner"), policy_of("project")
        self.tier = Collection(
            "project", RANKS["project"], store, policy, lambda: TRUST, AUDIENCE, store.audit, self.root, states
        )

    def write(self, name: str, body: str = BODY, version: str = "1.0.0") -> None:
        path = self.root / f"knowledge/acme/{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text := note(name.lower(), body, version))
        item = parse_item(ItemType.KNOWLEDGE, f"acme/{name}", text).item
        assert item is not None
        signature_path(path).write_bytes(signature_file(ADA.sign(item, AUDIENCE)))

    async def index(self, model: Hashing, jobs: int = JOBS, **callbacks: Any) -> SyncReport:
        writer, heard = IngestContext(GATE, model), Callbacks(**callbacks)
        report = await sync(ItemSource(self.tier, GATE), self.tier, writer, heard, jobs=jobs)
        report.raise_unless_rejected()
        return report

    async def ids(self) -> list[str]:
        return [item.ref.item_id for item in await self.tier.store.list(Filters())]


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    made = Project(tmp_path)
    yield made
    await made.tier.store.close()


def work(number: int, texts: Sequence[str]) -> AdmittedFile:
    passages = [Passage(ordinal, text, "", (), 1, 1) for ordinal, text in enumerate(texts)]
    return AdmittedFile(admission(f"acme/w{number}"), passages, None)  # type: ignore[arg-type]  # nobody reads its stamp here


async def each(works: Sequence[AdmittedFile]) -> AsyncIterator[AdmittedFile]:
    for one in works:
        yield one


@pytest.mark.parametrize("jobs", [1, 2, 5])
async def test_items_come_back_in_order_with_their_own_vectors(jobs: int) -> None:
    chance = np.random.default_rng(jobs)
    works = [work(n, [f"pump {x}" for x in chance.integers(0, 400, chance.integers(1, 30))]) for n in range(60)]
    model = Counting()
    done = [one async for group in encode_files(each(works), model, jobs) for one in group]
    assert [file.admission.ref for file, _ in done] == [one.admission.ref for one in works]
    for file, records in done:
        assert [record.passage for record in records] == list(file.passages)
        for record in records:
            assert (record.vector == Hashing().encode([embedded_text(record.passage)])[0]).all()
    assert set(model.seen.values()) == {1}


async def test_a_text_that_many_items_share_is_encoded_once_in_a_run(project: Project) -> None:
    for number in range(40):
        project.write(f"n{number}", BODY + f"\n\n## Own\n\nOnly of number {number}.\n")
    model = Counting()
    report = await project.index(model)
    assert len(report.admitted) == 40
    assert set(model.seen.values()) == {1}
    assert (await project.tier.store.status()).passages == report.passages


async def test_an_unchanged_tier_encodes_and_stores_nothing(project: Project) -> None:
    for number in range(3):
        project.write(f"n{number}")
    await project.index(Counting())
    model, planned = Counting(), []
    report = await project.index(model, planned=lambda total: planned.append(total) or planned.append)
    assert (report.admitted, report.unchanged, report.passages) == ([], 3, 0)
    assert (model.seen.total(), planned) == (0, [0])


async def test_progress_adds_up_to_the_files_that_changed(project: Project) -> None:
    for number in range(5):
        project.write(f"n{number}")
    (project.root / "knowledge/acme/n3.md.sig").unlink()
    heard: list[int] = []
    report = await project.index(Counting(), planned=lambda total: heard.append(-total) or heard.append)
    assert len(report.rejected) == 1
    assert heard[0] == -5
    assert sum(heard) == 0


async def test_an_item_is_judged_by_what_is_there_when_its_turn_comes(project: Project, tmp_path: Path) -> None:
    """It was found, and compared with the last run, before that."""
    folder, new = project.root / "knowledge/acme", BODY.replace("north", "south")
    names = ("gone", "kept", "linked", "raised", "same", "torn")
    for name in names:
        project.write(name)
    await project.index(Counting())
    first = {path: path.read_bytes() for path in folder.glob("same*")}
    for name in names:
        project.write(name, new, "1.1.0")

    def change(total: int) -> Any:
        assert total == 6
        (folder / "gone.md").unlink()
        (folder / "torn.md").write_text("torn")
        (folder / "linked.md").unlink()
        (tmp_path.parent / "outside.md").write_text("outside")
        (folder / "linked.md").symlink_to(tmp_path.parent / "outside.md")
        project.write("raised", new.replace("basin", "dock"), "1.2.0")
        for path, data in first.items():
            path.write_bytes(data)
        return lambda _: None

    report = await project.index(Counting(), planned=change)
    assert sorted(Path(path).stem for path in report.failed) == ["linked", "torn"]
    assert (sorted(report.indexed), report.removed, report.unchanged) == (
        ["acme/kept", "acme/raised"],
        ["acme/gone"],
        1,
    )
    versions = {item.ref.item_id: item.ref.version for item in await project.tier.store.list(Filters())}
    assert versions["acme/raised"] == "1.2.0"
    again = await project.index(Counting())
    assert (again.indexed, again.unchanged, sorted(again.failed)) == ([], 3, sorted(report.failed))


async def test_when_the_model_fails_what_was_stored_stays_and_the_next_run_does_the_rest(project: Project) -> None:
    for number in range(70):
        project.write(f"n{number:03}", BODY.replace("pump", f"pump {number}"))
    told: list[str] = []
    with pytest.raises(EmbeddingError, match="fell over"):
        await project.index(Counting(limit=150), stored=lambda one: told.append(one.ref.item_id))
    assert told == await project.ids()
    assert 0 < len(told) < 70
    project.open()  # as the next process does
    report = await project.index(Counting())
    assert (report.unchanged, len(report.admitted)) == (len(told), 70 - len(told))
    assert len(await project.ids()) == 70
    assert await project.tier.store.check() == ()


async def test_a_full_disk_stops_the_run_and_loses_nothing_that_was_told(project: Project) -> None:
    for number in range(50):
        project.write(f"n{number:03}", BODY.replace("pump", f"pump {number}"))
    told: list[str] = []
    await project.tier.store.status()
    with project.tier.store._session.borrow("write") as connection:
        connection.execute("PRAGMA max_page_count = 150")  # SQLite's own way to say that the disk is full
    with pytest.raises(StoreFull):
        await project.index(Counting(), stored=lambda one: told.append(one.ref.item_id))
    assert set(told) == set(await project.ids())
    assert len(told) < 50
    project.open()
    await project.index(Counting())
    assert len(await project.ids()) == 50
    assert await project.tier.store.check() == ()


async def test_a_run_that_is_cancelled_keeps_what_it_told_of(project: Project) -> None:
    for number in range(50):
        project.write(f"n{number:03}", BODY.replace("pump", f"pump {number}"))
    told: list[str] = []
    enough = asyncio.Event()

    def stored(one: Any) -> None:
        told.append(one.ref.item_id)
        if len(told) == 20:
            enough.set()

    run = asyncio.create_task(project.index(Counting(), stored=stored))
    await enough.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    there = set(await project.ids())
    assert set(told) <= there
    assert len((await project.index(Counting())).admitted) == 50 - len(there)


async def test_the_next_group_is_encoded_while_the_last_is_stored(project: Project) -> None:
    """The model is asked for the second group before the first item is told of."""
    for number in range(GROUP):
        project.write(f"n{number:03}", BODY.replace("pump", f"pump {number}"))
    model, at_first = Counting(), []
    await project.index(model, stored=lambda _: at_first.append(model.seen.total()))
    assert at_first[0] > GROUP


async def test_a_lost_or_damaged_record_of_read_files_costs_one_reading(project: Project) -> None:
    for number in range(3):
        project.write(f"n{number}")
    await project.index(Counting())
    before = await project.tier.store.digests()
    for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(b"no database" * 1000)):
        project.tier.states.close()
        damage(project.tier.states.path)
        report = await project.index(Counting())
        assert (report.failed, report.deleted) == ({}, [])
        assert await project.tier.store.digests() == before
        assert (await project.index(Counting())).unchanged == 3


async def test_what_the_store_lost_is_stored_again_though_its_file_is_the_same(project: Project) -> None:
    for number in range(3):
        project.write(f"n{number}")
    await project.index(Counting())
    before = await project.tier.store.digests()
    await project.tier.store.clear()
    assert len((await project.index(Counting())).admitted) == 3
    assert await project.tier.store.digests() == before


async def test_what_is_stored_without_a_file_is_removed_though_its_stamp_is_lost(project: Project) -> None:
    for number in range(3):
        project.write(f"n{number}")
    await project.index(Counting())
    project.tier.states.clear()
    (project.root / "knowledge/acme/n1.md").unlink()
    report = await project.index(Counting())
    assert [ref.item_id for ref in report.deleted] == ["acme/n1"]
    assert await project.ids() == ["acme/n0", "acme/n2"]
