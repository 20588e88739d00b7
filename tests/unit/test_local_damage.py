"""Damage, a full disk, and kill -9: what was acknowledged is there, and nothing half-written is found."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kiwi_rag.errors import StoreCorrupt, StoreError, StoreFull
from kiwi_rag.model import CollectionStatistics, Filters
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.local.ownership import CATALOG_NAME, CHROMA_NAME
from tests.conformance.items import admission, query, records
from tests.disks import small_disk
from tests.examples import KILLS

EVERYTHING = Filters()


async def filled(folder: Path, count: int = 5, **options: int) -> LocalVectorStore:
    store = LocalVectorStore(folder / "vectors", "owner", **options)
    async with store.writing():
        for number in range(count):
            await store.put([records(admission(f"acme/item-{number}", f"alpha {number}"), seed=number)])
    await store.close()
    return store


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(50_000))


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def scribbled(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(2).randbytes(path.stat().st_size - 8192))


@pytest.mark.parametrize("damage", [garbage, cut_short])
async def test_a_damaged_catalog_is_noticed_on_opening(tmp_path: Path, damage) -> None:
    store = await filled(tmp_path)
    damage(store.folder / CATALOG_NAME)
    with pytest.raises(StoreCorrupt) as caught:
        await store.list(EVERYTHING)
    assert caught.value.hint == "kiwi doctor --repair"
    await store.close()


@pytest.mark.parametrize("damage", [garbage, cut_short, scribbled])
async def test_repair_starts_empty_and_keeps_the_damaged_file(tmp_path: Path, damage) -> None:
    store = await filled(tmp_path)
    damage(store.folder / CATALOG_NAME)
    assert len(await store.check()) == 1
    done = await store.repair()
    assert f"{CATALOG_NAME}.corrupt-1" in done[0]
    assert (store.folder / f"{CATALOG_NAME}.corrupt-1").exists()
    assert await store.list(EVERYTHING) == []
    await store.put([records(admission("acme/item-1", "alpha 1"))])
    async with store.writing():  # updates Chroma at its end
        pass
    assert await store.check() == ()
    assert await store.repair() == []
    await store.close()


BREAKS = {
    "a vector is gone": "DELETE FROM vectors WHERE passage_key = 2",
    "a vector is short": "UPDATE vectors SET vector = x'00000000' WHERE passage_key = 2",
    "a vector is no unit vector": "UPDATE vectors SET vector = zeroblob(1536) WHERE passage_key = 2",
    "a payload was altered": "UPDATE items SET payload = x'7b7d' WHERE item_key = 2",
    "an item lost its passages": "DELETE FROM passages WHERE item_key = 2",
    "an item lost its file": "DELETE FROM item_files WHERE item_key = 2",
    "a file lost its content": "DELETE FROM blobs WHERE content = CAST('alpha 1' AS BLOB)",
    "a content was altered": "UPDATE blobs SET content = 'beta 1' WHERE content = CAST('alpha 1' AS BLOB)",
    "a file has another name": "UPDATE item_files SET path = 'other.md' WHERE item_key = 2",
}
MENDABLE = {
    "a posting is gone": "DELETE FROM postings WHERE rowid = 2",
    "a posting is left over": "INSERT INTO postings (rowid, terms) VALUES (99, 'ghost')",
    "the statistics are wrong": "UPDATE meta SET value = value + 1 WHERE name = 'total_length'",
    "a file is left over": "INSERT INTO item_files (item_key, path, sha256) SELECT 99, 'x', sha256 FROM blobs LIMIT 1",
    "a content is left over": "INSERT INTO blobs (sha256, content) VALUES ('00', x'00')",
    "a tag is an orphan": "INSERT INTO tags (item_key, tag) VALUES (99, 'ghost')",
}


@pytest.mark.parametrize("what", [*BREAKS, *MENDABLE])
async def test_check_finds_and_repair_mends(tmp_path: Path, what: str) -> None:
    store = await filled(tmp_path)
    with sqlite3.connect(store.folder / CATALOG_NAME) as connection:
        connection.execute({**BREAKS, **MENDABLE}[what])
    assert await store.check() != ()
    assert await store.repair() != []
    assert await store.check() == ()
    assert len(await store.list(EVERYTHING)) == (4 if what in BREAKS else 5)
    found = await store.search(query("alpha", await store.statistics(["alpha"])))
    assert len(found.items) == (4 if what in BREAKS else 5)
    await store.close()


def remove(chroma: Path) -> None:
    shutil.rmtree(chroma)


def scribble_database(chroma: Path) -> None:
    (chroma / "chroma.sqlite3").write_bytes(random.Random(3).randbytes(20_000))


def cut_database(chroma: Path) -> None:
    cut_short(chroma / "chroma.sqlite3")


def empty_database(chroma: Path) -> None:
    (chroma / "chroma.sqlite3").unlink()


@pytest.mark.parametrize("damage", [remove, scribble_database, empty_database])
async def test_a_damaged_chroma_folder_is_rebuilt(tmp_path: Path, damage) -> None:
    store = await filled(tmp_path, exact_limit=0)
    damage(store.folder / CHROMA_NAME)
    asked = query("zzz", CollectionStatistics(), seed=3, depth=1)
    assert [c.ref.item_id for c in (await store.search(asked)).items] == ["acme/item-3"]
    await store.close()
    await store.put([records(admission("acme/more"), seed=300)])
    async with store.writing():  # updates Chroma at its end
        pass
    assert (await store.search(asked)).plan == "chroma"
    assert await store.check() == ()
    await store.close()


@pytest.mark.parametrize("lost", [1, 2])
async def test_chroma_that_lost_passages_is_not_used_and_one_with_others_is_found_by_the_check(
    tmp_path: Path, lost: int
) -> None:
    import chromadb
    from chromadb.config import Settings

    store = await filled(tmp_path, exact_limit=0)
    await store.close()
    client = chromadb.PersistentClient(str(store.folder / CHROMA_NAME), Settings(anonymized_telemetry=False))
    collection = client.get_collection("items", embedding_function=None)
    collection.delete(ids=["1", "2"][:lost])
    if lost == 1:  # as many as there should be
        collection.add(ids=["99"], embeddings=collection.get(ids=["2"], include=["embeddings"])["embeddings"])
    client.close()
    asked = query("zzz", CollectionStatistics(), seed=3, depth=5)
    found = await store.search(asked)
    assert lost == 1 or (found.plan, len(found.items)) == ("exact", 5)
    assert len(await store.check()) == 1
    assert await store.repair() == ["rebuilt the Chroma index from the catalog's vectors"]
    assert await store.check() == ()
    assert ((found := await store.search(asked)).plan, len(found.items)) == ("chroma", 5)
    await store.close()


@pytest.mark.parametrize("damage", [remove, scribble_database, cut_database])
async def test_the_first_repair_rebuilds_chroma_alone(tmp_path: Path, damage) -> None:
    store = await filled(tmp_path, exact_limit=0)
    damage(store.folder / CHROMA_NAME)
    assert await store.repair() == ["rebuilt the Chroma index from the catalog's vectors"]
    assert await store.check() == ()
    assert len(await store.list(EVERYTHING)) == 5
    await store.close()


async def test_without_chroma_searches_are_exact_and_the_status_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "chromadb", None)
    store = await filled(tmp_path, exact_limit=0)
    found = await store.search(query("zzz", CollectionStatistics(), seed=3, depth=1))
    assert (found.plan, [c.ref.item_id for c in found.items]) == ("exact", ["acme/item-3"])
    reason = "the package chromadb is not installed (pip install 'chromadb>=1.5,<2')"
    assert (await store.status()).problems == (f"chroma cannot be written, so searches stay exact: {reason}",)
    with pytest.raises(StoreError, match="chroma cannot be rebuilt: the package chromadb is not installed"):
        await store.repair()
    monkeypatch.delitem(sys.modules, "chromadb")
    assert await store.repair() == ["rebuilt the Chroma index from the catalog's vectors"]
    await store.close()


async def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        await _fill_the_disk(disk)


async def _fill_the_disk(disk: Path) -> None:
    store = LocalVectorStore(disk / "vectors", "owner")
    acknowledged = 0
    with pytest.raises(StoreFull):
        for number in range(1000):
            one = admission(f"acme/item-{number}", "beta " * 200)
            await store.put([records(one, ["beta " * 200] * 4, seed=10 * number)])
            acknowledged += 1
    assert acknowledged > 3
    held = await store.list(EVERYTHING)
    assert [i.passages for i in held] == [4] * acknowledged
    statistics = await store.statistics(["beta"])
    assert statistics.document_frequency == {"beta": 4 * acknowledged}
    store._wrote = False  # Chroma would only meet the full disk again
    await store.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from kiwi_rag.stores.local import LocalVectorStore
from tests.conformance.items import admission, records
async def run(folder, start):
    store = LocalVectorStore(Path(folder), "owner", exact_limit=0)
    print("ready", flush=True)
    for number in range(start, start + 100_000):
        for version in ("1.0.0", "1.1.0"):
            text, newer = f"{start} {number} {version}", f"{number + 1}.{version[2:]}"
            one = admission(f"acme/item-{number % 40}", text, version=newer)
            await store.put([records(one, [f"alpha {number}", f"beta {version}"], seed=number)])
            print(one.ref.item_id, one.ref.version, flush=True)
        if number % 7 == 6:
            await store.delete(one.ref)
            print(one.ref.item_id, "-", flush=True)
asyncio.run(run(sys.argv[1], int(sys.argv[2])))
"""


async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    chance = random.Random(11)
    state: dict[str, str] = {}
    written = 0
    for round_number in range(KILLS):
        lines = _write_and_kill(folder, 1000 * round_number, chance.randrange(14), chance.uniform(0.0, 0.03))
        written += len(lines)
        state |= dict(lines)
        store = LocalVectorStore(folder, "owner", exact_limit=0)
        held = {i.ref.item_id: i for i in await store.list(EVERYTHING)}
        assert all(item.passages == 2 for item in held.values())
        # The one write that was under way when the process died may be there or not.
        wrong = {i for i, v in state.items() if (held[i].ref.version if i in held else "-") != v}
        assert len(wrong | (held.keys() - state.keys())) <= 1
        state = {**dict.fromkeys(state, "-"), **{i: str(item.ref.version) for i, item in held.items()}}
        assert {p for p in await store.check() if not p.startswith("chroma: ")} == set()
        assert all([await store.history(ItemRef(ItemType.DIRECTIVE, i)) for i in held])
        await store.close()
    assert written > 5 * KILLS
    store = LocalVectorStore(folder, "owner", exact_limit=0)
    await store.repair()
    assert await store.check() == ()
    await store.close()


def _write_and_kill(folder: Path, start: int, writes: int, after: float) -> list[tuple[str, str]]:
    """Let a writer run, kill it `after` seconds past so many `writes`, and return what it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(start)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    done = "".join(process.stdout.readline() for _ in range(writes))
    time.sleep(after)
    process.kill()
    rest = done + process.stdout.read()
    process.wait()
    whole = rest[: rest.rfind("\n") + 1]
    return [(item_id, version) for item_id, version in (line.split() for line in whole.splitlines())]
