"""What the local tier adds to the protocol: sources, the lock, atomic writes, ownership, the plan."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kiwi_rag.errors import FingerprintMismatch, StoreBusy, StoreCorrupt, StoreError, UsageError
from kiwi_rag.lexical import query_terms
from kiwi_rag.model import CollectionStatistics, Filters
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.storage.sqlite import transaction
from kiwi_rag.stores.local import LocalVectorStore, catalog
from kiwi_rag.stores.local.ownership import CATALOG_NAME, CHROMA_NAME, find_old_catalog
from kiwi_rag.stores.local.session import CREATE_POSTINGS
from kiwi_rag.validation.audit import AuditEvent
from tests.conformance.items import admission, query, records
from tests.shared import ROOT, extract

EVERYTHING = Filters()


def opened(folder: Path, **options: object) -> LocalVectorStore:
    return LocalVectorStore(folder / "vectors", "owner", **options)  # type: ignore[arg-type]


async def fill(store: LocalVectorStore, count: int, text: str = "alpha beta") -> None:
    async with store.writing():
        for number in range(count):
            one = admission(f"acme/item-{number}", f"{text} {number}")
            await store.put([records(one, seed=10 * number)])


async def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await fill(store, 3)
    await store.close()
    again = opened(tmp_path)
    assert len(await again.list(EVERYTHING)) == 3
    assert await again.check() == ()
    assert (tmp_path / "vectors" / ".gitignore").read_text() == "*\n"
    await again.close()


async def test_reads_that_wait_together_share_a_thread_and_fail_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, threads, to_thread = opened(tmp_path), [], asyncio.to_thread
    await fill(store, 2)
    monkeypatch.setattr(asyncio, "to_thread", lambda run, *rest: threads.append(run) or to_thread(run, *rest))
    items = [admission(f"acme/item-{number}").ref for number in range(2)]
    gone = asyncio.create_task(store.history(items[0]))
    refused = replace(query("alpha", CollectionStatistics()), filters=Filters(author="\ud800"))
    reads = [store.get(items[0]), store.search(refused), store.get(items[1])]
    asyncio.get_running_loop().call_soon(gone.cancel)
    first, failed, second = await asyncio.gather(*reads, return_exceptions=True)
    assert (first.ref.item_id, second.ref.item_id) == ("acme/item-0", "acme/item-1")
    assert isinstance(failed, UsageError)
    assert len(threads) == 1
    assert gone.cancelled()
    assert len(await store.list(EVERYTHING)) == 2
    await store.close()


async def test_a_store_sees_that_its_catalog_was_deleted_and_made_anew(tmp_path: Path) -> None:
    store = opened(tmp_path, exact_limit=0)
    await fill(store, 2, "alpha")
    asked = query("alpha beta", CollectionStatistics())
    assert len((await store.search(asked)).items) == 2
    shutil.rmtree(tmp_path / "vectors")
    other = opened(tmp_path, exact_limit=0)
    await fill(other, 2, "beta")  # as many writes: by its number alone it is the same generation
    assert [row.passage.text for row in (await store.search(asked)).items] == [
        row.passage.text for row in (await other.search(asked)).items
    ]
    assert [one.digest for one in await store.list(EVERYTHING)] == [one.digest for one in await other.list(EVERYTHING)]
    shutil.rmtree(tmp_path / "vectors")
    assert await store.list(EVERYTHING) == []
    await store.close()
    await other.close()


async def test_several_entries_are_stored_together_or_not_at_all(tmp_path: Path) -> None:
    store = opened(tmp_path)
    good, other_model = records(admission("acme/one")), records(admission("acme/two"), fingerprint="other/1")
    with pytest.raises(FingerprintMismatch):
        await store.put([good, other_model])
    assert (await store.list(EVERYTHING), await store.digests()) == ([], {})
    last = records(admission("acme/one", "later", version="2.0.0"))
    await store.put([good, records(admission("acme/two")), last])
    assert [(one.ref.item_id, one.ref.version) for one in await store.list(EVERYTHING)] == [
        ("acme/one", "2.0.0"),
        ("acme/two", "1.0.0"),
    ]
    assert (await store.digests())[ItemRef(ItemType.DIRECTIVE, "acme/one")] == last[0].admission.digest
    listed = {dataclasses.replace(one.ref, version=None): one.digest for one in await store.list(EVERYTHING)}
    assert listed == await store.digests()
    await store.close()


async def test_clear_keeps_history_and_frees_the_fingerprint(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await store.put([records(admission("acme/one"))])
    await store.clear()
    assert (await store.list(EVERYTHING), await store.digests()) == ([], {})
    assert await store.history(ItemRef(ItemType.DIRECTIVE, "acme/one"))
    await store.put([records(admission("acme/one"), fingerprint="other/1")])
    assert (await store.status()).fingerprint == "other/1"
    await store.close()


async def test_a_content_is_kept_once_and_as_long_as_an_item_has_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    same = [admission(f"acme/{name}", "the same text") for name in ("one", "two")]
    await store.put([records(one) for one in same])

    def contents() -> list[bytes]:
        with sqlite3.connect(store.folder / CATALOG_NAME) as connection:
            return [row[0] for row in connection.execute("SELECT content FROM blobs")]

    assert contents() == [b"the same text"]
    await store.delete(same[0].ref)
    assert contents() == [b"the same text"]
    await store.put([records(admission("acme/two", "another text", version="2.0.0"))])
    assert contents() == [b"another text"]
    await store.clear()
    assert contents() == []
    await store.close()


async def test_a_catalog_of_a_pre_release_kiwi_stays_where_it_is(tmp_path: Path) -> None:
    extract(ROOT / "tests/data/pre-release/home-and-project.tar.gz", tmp_path)
    token = (tmp_path / "home/.ai/owner-token").read_text()
    (folder,) = [path.parent for path in tmp_path.glob("project/.ai/vectors/*/catalog.sqlite3")]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert find_old_catalog(folder) == folder / "catalog.sqlite3"
    store = LocalVectorStore(folder, token)
    assert await store.list(EVERYTHING) == []
    await fill(store, 2)
    assert (await store.check(), find_old_catalog(folder)) == ((), None)
    await store.close()
    assert {path: path.read_bytes() for path in before} == before
    assert not [path for path in folder.iterdir() if "foreign" in path.name]


async def test_ids_that_fold_to_one_are_one_item(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await store.put([records(admission("acme/check-in", "one"))])
    await store.put([records(admission("acme/check_in", "two", version="2.0.0"))])
    assert [i.ref.item_id for i in await store.list(EVERYTHING)] == ["acme/check_in"]
    assert len(await store.history(ItemRef(ItemType.DIRECTIVE, "acme/check-in"))) == 2
    await store.close()


async def test_the_plan_is_exact_below_the_limit_and_when_filtered(tmp_path: Path) -> None:
    store = opened(tmp_path, exact_limit=5)
    await fill(store, 5)
    asked = query("alpha", await store.statistics(["alpha"]), seed=20, depth=3)
    assert (await store.search(asked)).plan == "exact"
    await fill(store, 30)
    statistics = await store.statistics(query_terms("alpha"))
    found = await store.search(query("alpha", statistics, seed=20, depth=3))
    assert found.plan == "chroma"
    assert max(found.items, key=lambda c: c.cosine).ref.item_id == "acme/item-2"
    filtered = await store.search(query("alpha", statistics, seed=20, filters=Filters(category="ops"), depth=3))
    assert filtered.plan == "exact"
    await store.close()


async def test_while_chroma_is_behind_the_catalog_answers(tmp_path: Path) -> None:
    store = opened(tmp_path, exact_limit=0)
    await fill(store, 4)
    await store.put([records(admission("acme/new", "brand new"), seed=777)])
    found = await store.search(query("zzz", CollectionStatistics(), seed=777, depth=1))
    assert (found.plan, [c.ref.item_id for c in found.items]) == ("exact", ["acme/new"])
    assert (await store.status()).details["chroma"] == "behind"
    async with store.writing():  # updates Chroma at its end
        pass
    found = await store.search(query("zzz", CollectionStatistics(), seed=777, depth=1))
    assert (found.plan, [c.ref.item_id for c in found.items]) == ("chroma", ["acme/new"])
    await store.close()


async def test_a_reader_sees_what_another_store_wrote(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path), opened(tmp_path)
    await fill(writer, 2)
    statistics = await reader.statistics(query_terms("alpha"))
    assert statistics.passages == 2
    async with writer.writing():
        await writer.put([records(admission("acme/late", "gamma"), seed=999)])
        found = await reader.search(query("gamma", await reader.statistics(["gamma"]), seed=999))
    assert max(found.items, key=lambda c: c.cosine).ref.item_id == "acme/late"
    await reader.close()
    await writer.close()


HOLDER = """
import asyncio, sys
from pathlib import Path
from kiwi_rag.storage.sqlite import transaction
from kiwi_rag.stores.local import LocalVectorStore, catalog
async def hold():
    async with LocalVectorStore(Path(sys.argv[1]), "owner").writing():
        print("held", flush=True)
        await asyncio.sleep(60)
asyncio.run(hold())
"""


async def test_a_second_writer_is_told_who_holds_the_tier(tmp_path: Path) -> None:
    store = opened(tmp_path, wait_seconds=0.5)
    await store.put([records(admission("acme/one"))])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(store.folder)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    try:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == "held\n"
        start = time.monotonic()
        with pytest.raises(StoreBusy, match=f"pid {holder.pid} on "):
            await store.put([records(admission("acme/two"))])
        assert time.monotonic() - start < 30
        assert len(await store.list(EVERYTHING)) == 1  # reading goes on meanwhile
        store.audit.append(AuditEvent("hit.refused", "directive:acme/one", "", "", {}))
    finally:
        holder.kill()
        holder.wait()
    await store.put([records(admission("acme/two"))])  # the lock died with its holder
    assert len(await store.list(EVERYTHING)) == 2
    await store.close()


async def test_a_catalog_of_another_owner_is_not_opened(tmp_path: Path) -> None:
    theirs = LocalVectorStore(tmp_path / "vectors", "their secret")
    await fill(theirs, 2)
    await theirs.close()
    mine = opened(tmp_path)
    assert await mine.list(EVERYTHING) == []
    assert (tmp_path / "vectors" / f"{CATALOG_NAME}.foreign-1").exists()
    await fill(mine, 1)
    assert await mine.check() == ()
    await mine.close()


async def test_a_catalog_swapped_under_our_mark_is_not_trusted(tmp_path: Path) -> None:
    mine, theirs = opened(tmp_path / "mine"), opened(tmp_path / "theirs")
    await fill(mine, 1)
    await fill(theirs, 2)
    await mine.close()
    await theirs.close()
    (theirs.folder / CATALOG_NAME).replace(mine.folder / CATALOG_NAME)
    assert await mine.list(EVERYTHING) == []
    await mine.close()


async def test_a_foreign_chroma_folder_is_rebuilt_unopened(tmp_path: Path) -> None:
    store = opened(tmp_path, exact_limit=0)
    await fill(store, 3)
    await store.close()
    chroma = store.folder / CHROMA_NAME
    (chroma / "kiwi-owner").write_text("somebody else")
    (chroma / "planted").write_text("x")
    asked = query("zzz", CollectionStatistics(), seed=20, depth=1)
    assert (await store.search(asked)).plan == "exact"
    await store.put([records(admission("acme/more"), seed=400)])
    async with store.writing():  # updates Chroma at its end
        pass
    assert not (chroma / "planted").exists()
    assert (await store.search(asked)).plan == "chroma"
    assert await store.check() == ()
    await store.close()


async def test_erasing_removes_chroma_and_the_next_run_makes_it(tmp_path: Path) -> None:
    store = opened(tmp_path, exact_limit=0)
    await fill(store, 6)
    asked = query("zzz", CollectionStatistics(), seed=3, depth=1)
    assert (await store.search(asked)).plan == "chroma"
    await store.erase([ItemRef(ItemType.DIRECTIVE, "acme/item-1")])
    assert not (store.folder / CHROMA_NAME).exists()
    assert (await store.search(asked)).plan == "exact"
    async with store.writing():
        pass
    assert (await store.search(asked)).plan == "chroma"
    assert await store.check() == ()
    await store.close()


async def test_chroma_follows_deletions(tmp_path: Path) -> None:
    store = opened(tmp_path, exact_limit=0)
    await fill(store, 6)
    async with store.writing():
        for number in range(0, 6, 2):
            await store.delete(ItemRef(ItemType.DIRECTIVE, f"acme/item-{number}"))
    found = await store.search(query("zzz", CollectionStatistics(), seed=0, depth=6))
    assert found.plan == "chroma"
    assert {c.ref.item_id for c in found.items} == {"acme/item-1", "acme/item-3", "acme/item-5"}
    assert await store.check() == ()
    await store.close()


async def test_a_newer_catalog_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await fill(store, 1)
    await store.close()
    path = store.folder / CATALOG_NAME
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    for attempt in (store.list(EVERYTHING), store.repair()):
        with pytest.raises(StoreError, match="newer Kiwi"):
            await attempt
    assert path.exists()
    await store.close()


async def test_a_catalog_of_a_schema_that_no_kiwi_made_is_damaged(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await fill(store, 1)
    await store.close()
    with sqlite3.connect(store.folder / CATALOG_NAME) as connection:
        connection.execute("PRAGMA user_version = 7")
    with pytest.raises(StoreCorrupt):
        await store.list(EVERYTHING)
    assert f"{CATALOG_NAME}.corrupt-1" in (await store.repair())[0]
    assert await store.list(EVERYTHING) == []
    await store.close()


async def test_concurrent_tasks_of_one_store(tmp_path: Path) -> None:
    store = opened(tmp_path)

    async def one(number: int) -> None:
        await store.put([records(admission(f"acme/item-{number}"), seed=number)])
        await store.search(query("restart", CollectionStatistics(1, 1, {"restart": 1}), seed=number))

    async with store.writing():
        await asyncio.gather(*(one(n) for n in range(20)))
    assert len(await store.list(EVERYTHING)) == 20
    assert await store.check() == ()
    await store.close()


async def test_the_holder_note_is_gone_after_writing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    async with store.writing():
        note = json.loads((store.folder / "writer.json").read_text())
        assert note["pid"] == os.getpid()
    assert not (store.folder / "writer.json").exists()
    await store.close()


def test_merging_the_postings_many_times_leaves_few_levels() -> None:
    # SQLite 3.40 adds a level with each `optimize`, and cannot read an index of over 2,000.
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for statement in CREATE_POSTINGS:
        connection.execute(statement)
    for number in range(250):
        for rowid in range(3 * number, 3 * number + 3):
            connection.execute(catalog.INSERT_POSTING, (rowid, f"alpha t{rowid}"))
        with transaction(connection):
            connection.execute("DELETE FROM postings WHERE rowid = ?", (3 * number,))
            catalog.merge_postings(connection)
    levels = connection.execute("SELECT substr(block, 5, 1) FROM postings_data WHERE id = 10").fetchone()[0][0]
    assert 0 < levels < 100
    assert connection.execute("SELECT count(*) FROM postings WHERE postings MATCH 'alpha'").fetchone() == (500,)
    connection.execute("INSERT INTO postings (postings) VALUES ('integrity-check')")
    connection.close()
