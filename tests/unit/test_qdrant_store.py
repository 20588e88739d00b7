"""The index in Qdrant: writers that meet or break off, servers that fail or lie, documents, and exact words."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from qdrant_client import models

from kiwi_rag.errors import (
    ConfigError,
    FingerprintMismatch,
    KiwiError,
    StoreCorrupt,
    StoreError,
    StoreRefused,
    StoreUnreachable,
    UsageError,
)
from kiwi_rag.lexical import query_terms
from kiwi_rag.model import CollectionStatistics, EmbeddingRecord, Filters
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.stores import payload, qdrant
from kiwi_rag.stores.base import NOT_FOUND_BY_VECTOR
from kiwi_rag.stores.qdrant import QdrantConnection, QdrantVectorStore
from tests.conformance.documents import document, records_of
from tests.conformance.items import admission, query, records, unit_vector
from tests.examples import size
from tests.qdrant_server import API_KEY, Failure, LocalQdrant, QdrantServer, Seen

OLD = ["zebra one", "zebra two", "zebra three"]
NEW = ["giraffe one", "giraffe two"]
REF = ItemRef(ItemType.DOCUMENT, "acme/deploy")


def batch(texts: Sequence[str], path: str = "acme/deploy") -> list[EmbeddingRecord]:
    return records_of(document(path, texts), seed=len(texts[0]))


async def texts_of(store: QdrantVectorStore, text: str, **changes: Any) -> list[str]:
    """What a search for `text` finds by its words, best first."""
    asked = query(text, await store.statistics(query_terms(text)), **changes)
    found = await store.search(asked)
    return [c.passage.text for c in sorted(found.items, key=lambda c: -c.bm25) if c.bm25 > 0]


async def seen_by_a_reader(store: QdrantVectorStore) -> tuple[int, int, list[str]]:
    """Items, passages and all texts, as counting and searching have them."""
    counted = await store.statistics([])
    found = await store.search(query("zebra giraffe", await store.statistics(query_terms("zebra giraffe"))))
    assert not found.refused
    return counted.items, counted.passages, sorted(c.passage.text for c in found.items)


def impatient(store: QdrantVectorStore, seconds: float = 0) -> QdrantVectorStore:
    """The store, which takes writes for broken off that began so many seconds ago."""
    store.broken_off_seconds = seconds
    return store


Call = Callable[[], Awaitable[Any]]


class Broken(Exception):
    """The writer's process ended here."""


def around(monkeypatch: pytest.MonkeyPatch, method: str, wrapper: Callable[[Call], Awaitable[Any]]) -> None:
    """Run `wrapper` in place of every call of one of the client's methods; it is given the call to make."""
    call = QdrantConnection.call

    async def wrapped(self: QdrantConnection, name: str, *arguments: Any, **options: Any) -> Any:
        if name != method:
            return await call(self, name, *arguments, **options)
        return await wrapper(lambda: call(self, name, *arguments, **options))

    monkeypatch.setattr(QdrantConnection, "call", wrapped)


def breaking(monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
    """End the writer at one of its requests that write, before or after the server has done what it asks."""
    number = 0

    async def broken(update: Call) -> None:
        nonlocal number
        number += 1
        if number < at or after:
            await update()
        if number == at:
            raise Broken

    around(monkeypatch, "batch_update_points", broken)


class Yielding(LocalQdrant):
    """Local mode that lets others go first before each request, so that writers meet everywhere."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        for _ in range(self._random.randrange(5)):
            await asyncio.sleep(0)
        return await super().call(method, *arguments, **options)


async def test_a_search_that_meets_a_deletion_in_every_round_refuses_nothing() -> None:
    connection = LocalQdrant()
    store = QdrantVectorStore(connection, "shared")
    await store.put([batch(OLD)])

    class Disturbed(QdrantVectorStore):
        async def _search_legs(self, *arguments: Any) -> Any:
            await store.put([batch(OLD)])
            return await super()._search_legs(*arguments)

        async def _retrieve(self, ids: Any) -> Any:
            await store.delete(REF)  # between the legs and the heads
            return await super()._retrieve(ids)

    found = await Disturbed(connection, "shared").search(query("zebra", CollectionStatistics(3, 6, {"zebra": 3})))
    assert (found.items, found.refused) == ((), ())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2])  # two passages, the second with the head
async def test_a_writer_that_breaks_off_leaves_the_old_or_the_new_and_the_next_one_sweeps(
    at: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QdrantVectorStore, "passages_at_once", 1)
    connection = LocalQdrant()
    store = impatient(QdrantVectorStore(connection, "shared"), 0)
    await store.put([batch(OLD)])
    with monkeypatch.context() as broken:
        breaking(broken, at, after=after)
        with pytest.raises(Broken):
            await store.put([batch(NEW)])
    assert await seen_by_a_reader(store) in [(1, 3, sorted(OLD)), (1, 2, sorted(NEW))]
    assert (await store.similar_terms(["zebrq", "girafef"])).keys() == {"zebrq", "girafef"}

    await impatient(QdrantVectorStore(connection, "shared"), 0).put([batch(["other"], path="acme/other")])
    assert (await store.status()).problems == ()
    await store.put([batch(NEW)])
    assert await seen_by_a_reader(store) == (2, 3, sorted([*NEW, "other"]))
    assert await store.history(REF) == {}
    kinds = [point.payload["kind"] for point in await every_point(connection)]
    assert sorted(kinds) == ["head", "head", "passage", "passage", "passage"]
    await store.close()


async def every_point(connection: QdrantConnection) -> list[Any]:
    return (await connection.call("scroll", "shared", limit=1000))[0]


async def test_what_a_broken_writer_of_a_new_item_left_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QdrantVectorStore, "passages_at_once", 1)
    store = impatient(QdrantVectorStore(LocalQdrant(), "shared"), 0)
    await store.put([batch(["other"], path="acme/other")])
    with monkeypatch.context() as broken, pytest.raises(Broken):
        breaking(broken, 1, after=True)
        await store.put([batch(OLD)])
    assert await seen_by_a_reader(store) == (1, 1, ["other"])
    assert await store.get(REF) is None
    assert await store.delete(ItemRef(ItemType.DOCUMENT, "acme/other"))  # sweeps first
    assert (await store.statistics(["zebra"])) == CollectionStatistics()
    assert (await store.status()).problems == ()
    await store.put([batch(OLD)])
    assert await seen_by_a_reader(store) == (1, 3, sorted(OLD))
    await store.close()


@pytest.mark.parametrize("staged_seconds", [120, 0])
@pytest.mark.parametrize("seed", range(size(12)))
async def test_writers_that_meet_everywhere_leave_every_document_whole(
    seed: int, staged_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QdrantVectorStore, "passages_at_once", 1)
    monkeypatch.setattr(QdrantVectorStore, "tries", 100)
    connection = Yielding(seed)
    stores = [impatient(QdrantVectorStore(connection, "shared"), staged_seconds) for _ in range(3)]
    wanted = {f"acme/own-{n}": f"own {n}" for n in range(3)}

    async def write(number: int) -> None:
        chosen = random.Random(100 * seed + number)
        await stores[number].put([batch([f"own {number}", "more of it"], path=f"acme/own-{number}")])
        for _ in range(5):  # all three at one item, back and forth between the same two contents, or deleting it
            if chosen.random() < 0.2:
                await stores[number].delete(REF)
            else:
                await stores[number].put([batch(chosen.choice([OLD, NEW]))])
            if staged_seconds:  # with 0, writers sweep what others are about to publish
                await look()

    async def look() -> None:
        """Whatever is there now is there wholly."""
        found = await stores[0].search(query("zebra giraffe", CollectionStatistics(9, 9, {"zebra": 3, "giraff": 2})))
        seen = sorted(c.passage.text for c in found.items if c.ref == REF)
        assert (seen, found.refused) in [(texts, ()) for texts in ([], sorted(OLD), sorted(NEW))]

    await asyncio.gather(*(write(number) for number in range(3)))
    await stores[0].put([batch(OLD)])
    status = await stores[0].status()
    assert (status.items, status.passages, status.problems) == (4, 9, ())
    assert sorted(await texts_of(stores[1], "zebra")) == sorted(OLD)
    for item_id, text in wanted.items():
        assert text in await texts_of(stores[2], text), item_id
    kinds = [point.payload["kind"] for point in await every_point(connection)]
    assert sorted(kinds) == ["head"] * 4 + ["passage"] * 9
    await connection.close()


async def test_a_slow_writer_whose_leavings_were_swept_writes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QdrantVectorStore, "passages_at_once", 1)
    connection = LocalQdrant()
    slow, other = (impatient(QdrantVectorStore(connection, "shared"), s) for s in (1000, 0))
    await other.put([batch(NEW)])
    held, number = asyncio.Event(), 0

    async def slowly(update: Call) -> None:
        nonlocal number
        number += 1
        if number == 3:  # its last passage and the head
            await held.wait()
        await update()

    with monkeypatch.context() as patched:
        around(patched, "batch_update_points", slowly)
        writer = asyncio.create_task(slow.put([batch(OLD)]))
        while number < 3:
            await asyncio.sleep(0)
        await other.put([batch(["other"], path="acme/other")])
        assert await seen_by_a_reader(other) == (2, 3, sorted([*NEW, "other"]))
        held.set()
        await writer
    assert await seen_by_a_reader(other) == (2, 4, sorted([*OLD, "other"]))
    assert (await other.status()).problems == ()
    await connection.close()


async def test_a_search_that_a_writer_overtakes_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = LocalQdrant()
    store = QdrantVectorStore(connection, "shared")
    await store.put([batch(OLD)])
    overtaken = False

    async def overtake(query_: Call) -> Any:
        nonlocal overtaken
        found = await query_()
        if not overtaken:
            overtaken = True
            await store.put([batch(NEW)])
        return found

    around(monkeypatch, "query_batch_points", overtake)
    assert (await seen_by_a_reader(store))[2] == sorted(NEW)
    await store.close()


WRITER = """
import asyncio, sys
from kiwi_rag.stores.qdrant import QdrantConnection, QdrantVectorStore
from tests.conformance.documents import document, records_of

async def main(url, key, who):
    print("ready", flush=True)
    store = QdrantVectorStore(QdrantConnection(url, key), "shared")
    for n in range(5):
        texts = [f"file {n} of {who}", f"more of {n} by {who}"]
        await store.put([records_of(document(f"acme/{who}-{n}", texts), seed=n)])
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
async def test_two_processes_on_different_files_lose_nothing_of_each_other() -> None:
    """The other process is this one, which begins when the first is about to."""
    with QdrantServer(api_key=API_KEY) as server:
        ada = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, server.url, API_KEY, "ada", stdout=asyncio.subprocess.PIPE
        )
        store = QdrantVectorStore(QdrantConnection(server.url, API_KEY), "shared")
        assert ada.stdout is not None
        assert await ada.stdout.readline() == b"ready\n"
        for n in range(5):
            texts = [f"file {n} of bob", f"more of {n} by bob"]
            await store.put([records_of(document(f"acme/bob-{n}", texts), seed=n)])
        assert await ada.wait() == 0
        status = await store.status()
        assert (status.items, status.passages, status.problems) == (10, 20, ())
        assert status.details["server"] == "1.20.0"
        for who in ("ada", "bob"):
            assert len(await texts_of(store, who)) == 10
        await store.close()


@pytest.mark.parametrize("after", [False, True], ids=["lost", "answer-lost"])
async def test_a_connection_that_is_cut_is_tried_again_and_writes_once(after: bool) -> None:
    with QdrantServer() as server:
        store = QdrantVectorStore(QdrantConnection(server.url), "shared")
        await store.put([batch(OLD)])
        count = len(server.seen)
        await store.put([batch(NEW)])
        requests = [seen.path.rpartition("/")[2] for seen in server.seen[count:]]
        for number in range(len(requests)):
            server.before = cut_at(server, number, after=after)
            await store.put([batch(OLD if number % 2 == 0 else NEW)])
            assert await seen_by_a_reader(store) == ((1, 3, sorted(OLD)) if number % 2 == 0 else (1, 2, sorted(NEW)))
        assert requests.count("batch") == 1
        await store.close()


def cut_at(server: QdrantServer, number: int, *, after: bool) -> Callable[[Seen], None]:
    left = number

    def before(_: Seen) -> None:
        nonlocal left
        if left == 0:
            server.failures.append(Failure(after=after))
        left -= 1

    return before


async def test_no_server_is_an_error_and_never_an_empty_answer() -> None:
    with QdrantServer() as server:
        url = server.url
    store = QdrantVectorStore(QdrantConnection(url, "s3cret-key"), "shared")
    for call in (store.search(query("x", CollectionStatistics())), store.statistics(["x"]), store.list(Filters()),
                 store.get(REF), store.status(), store.put([batch(OLD)])):  # fmt: skip
        with pytest.raises(StoreUnreachable) as caught:
            await call
        assert "cannot be reached" in caught.value.message
        assert "KIWI_QDRANT_URL" in caught.value.hint
        assert "s3cret" not in f"{caught.value!r} {caught.value.__cause__!r}"
    await store.close()


ANSWERS: dict[str, tuple[Failure, type[KiwiError], str]] = {
    "key": (Failure(401, b'{"status": {"error": "bad key s3cret-key"}}'), StoreRefused, "(hidden)"),
    "forbidden": (Failure(403), StoreRefused, "told to fail"),
    "redirect": (Failure(307, b"", {"location": "http://127.0.0.1:1/"}), StoreError, "redirect"),
    "page": (Failure(200, b"<html>Welcome s3cret-key</html>"), StoreError, "not a qdrant server"),
    "json": (Failure(200, b'{"result": {"exists": "s3cret-key"}}'), StoreError, "not a qdrant server"),
    "strict": (Failure(400), StoreError, "told to fail"),
    "broken": (Failure(500, b'{"status": {"error": "Service internal error: s3cret-key"}}'), StoreError, "(hidden)"),
    "full": (Failure(507), StoreError, "disk"),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_what_else_a_server_answers_is_told_and_holds_no_key(name: str) -> None:
    failure, kind, words = ANSWERS[name]
    with QdrantServer() as server:
        connection = QdrantConnection(server.url, "s3cret-key")
        store = QdrantVectorStore(connection, "shared")
        await store.put([batch(OLD)])
        before = len(server.seen)
        server.failures.append(failure)
        with pytest.raises(kind) as caught:
            await store.search(query("x", CollectionStatistics()))
        assert words in caught.value.message.lower()
        assert "s3cret" not in f"{caught.value!r} {caught.value.hint} {caught.value.__cause__!r}"
        assert len(server.seen) == before + 1
        await store.close()


@pytest.mark.parametrize("failure", [Failure(503), Failure(429, headers={"retry-after": "1"}), Failure()], ids=str)
async def test_what_may_pass_is_tried_again(failure: Failure) -> None:
    with QdrantServer() as server:
        store = QdrantVectorStore(QdrantConnection(server.url), "shared")
        await store.put([batch(OLD)])
        server.failures.append(failure)
        assert sorted(await texts_of(store, "zebra")) == sorted(OLD)
        server.failures.extend([failure] * 2)
        with pytest.raises(StoreUnreachable):
            await store.statistics(["x"])
        await store.close()


async def test_a_server_that_does_not_answer_in_time_is_unreachable() -> None:
    with QdrantServer() as server:
        connection = QdrantConnection(server.url)
        connection.seconds = 1
        store = QdrantVectorStore(connection, "shared")
        assert await store.list(Filters()) == []
        server.before = lambda seen: time.sleep(1.5)
        with pytest.raises(StoreUnreachable, match="too long"):
            await connection.call("collection_exists", "shared", pauses=())
        server.before = lambda seen: None
        await store.close()


@pytest.mark.parametrize(
    ("version", "said"), [("1.15.4", "1.16 or newer"), ("0.11.0", "1.16"), ("nginx", "not a Qdrant")]
)
async def test_an_old_server_and_another_one_are_told_at_once(version: str, said: str) -> None:
    with QdrantServer(version=version) as server:
        store = QdrantVectorStore(QdrantConnection(server.url), "shared")
        with pytest.raises(StoreError, match=said):
            await store.put([batch(OLD)])
        assert [seen.path for seen in server.seen] == ["/"]
        await store.close()


@pytest.mark.parametrize(
    "url",
    ["folder", "http://qdrant.example:6333", "https://user:secret@host", "https://", "http://[::1", "https://h:99999"],
)
def test_a_key_goes_over_tls_or_to_this_machine(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        QdrantConnection(url, "s3cret-key")
    assert "secret" not in caught.value.message
    QdrantConnection("http://127.0.0.1:6333", "s3cret-key")
    QdrantConnection("https://qdrant.example", "s3cret-key")


def test_keys_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError):
        QdrantConnection("https://qdrant.example", "two words")


async def test_a_collection_is_of_one_model() -> None:
    store = QdrantVectorStore(LocalQdrant(), "shared")
    await store.put([batch(OLD)])
    with pytest.raises(FingerprintMismatch, match="other/1"):
        await store.put([records_of(document("acme/two", ["two"]), fingerprint="other/1/384/mean/256")])
    await store.close()


async def test_a_collection_that_kiwi_did_not_make_is_left_alone() -> None:
    connection = LocalQdrant()
    plain = {"dense": models.VectorParams(size=384, distance=models.Distance.COSINE)}
    await connection.call("create_collection", "theirs", plain)
    store = QdrantVectorStore(connection, "theirs")
    for call in (store.put([batch(OLD)]), store.search(query("x", CollectionStatistics())), store.delete(REF)):
        with pytest.raises(StoreCorrupt, match="did not make"):
            await call
    assert (await connection.call("count", "theirs")).count == 0
    await connection.close()


async def test_nothing_is_made_by_reading() -> None:
    connection = LocalQdrant()
    store = QdrantVectorStore(connection, "shared")
    assert await store.list(Filters()) == []
    assert not await store.delete(REF)
    assert "no collection 'shared' yet" in (await store.status()).problems[0]
    assert not (await connection.call("get_collections")).collections
    await connection.close()


DAMAGE: dict[str, tuple[str, dict[str, Any]]] = {
    "no-digest": ("head", {"digest": None}),
    "metadata": ("head", {"metadata": "{"}),
    "type": ("head", {"item_type": "recipe"}),
    "other-id": ("head", {"item_id": "acme/victim"}),
    "no-such-id": ("head", {"item_id": "../../etc/passwd"}),
    "time": ("head", {"signed_at": "yesterday"}),
    "signed-long-ago": ("head", {"admitted_at": 7, "digest": 7}),
    "head-of": ("head", {"of": 10**9}),
    "no-generation": ("head", {"generation": ""}),
    "turn": ("head", {"turn": True}),
    "text": ("passage", {"text": 7}),
    "heading": ("passage", {"heading": "Top"}),
    "lines": ("passage", {"start_line": None}),
    "ordinal": ("passage", {"ordinal": -1}),
    "other-place": ("passage", {"ordinal": 7}),
    "other-document": ("passage", {"item_id": "beta/sound"}),
    "generation": ("passage", {"generation": 7}),
    "section": ("passage", {"kind": ["x"]}),
    "path": ("passage", {"item_id": ["x"]}),
}


@pytest.mark.parametrize("name", DAMAGE)
async def test_what_cannot_be_read_is_refused_and_spoils_nothing_else(name: str) -> None:
    kind, changed = DAMAGE[name]
    connection = LocalQdrant()
    store = QdrantVectorStore(connection, "shared")
    await store.put([batch(OLD)])
    await store.put([batch(["a zebra elsewhere"], path="beta/sound")])
    statistics = await store.statistics(query_terms("zebra"))
    await damage(connection, kind, changed)
    found = await store.search(query("zebra", statistics))
    assert [c.ref.item_id for c in found.items if c.ref.item_id != "acme/deploy"] == ["beta/sound"]
    assert len(found.items) < 4
    assert found.refused
    assert all(hit.tier == "qdrant" and "malformed" in hit.reason for hit in found.refused)
    await store.list(Filters())
    await connection.close()


async def damage(connection: QdrantConnection, kind: str, changed: dict[str, Any]) -> None:
    """Change one point of the first document, as somebody with a key could."""
    item = models.FieldCondition(key="item_id", match=models.MatchValue(value="acme/deploy"))
    one = models.FieldCondition(key="kind", match=models.MatchValue(value=kind))
    (point, *_), _ = await connection.call("scroll", "shared", models.Filter(must=[item, one]))
    inner = "passage" if changed.keys() <= point.payload.get("passage", {}).keys() else None
    await connection.call("set_payload", "shared", changed, [point.id], key=inner)


async def test_a_document_that_cannot_be_read_is_listed_with_its_problem() -> None:
    connection = LocalQdrant()
    store = QdrantVectorStore(connection, "shared")
    await store.put([batch(OLD)])
    await damage(connection, "head", {"envelope": {"payloadType": "x"}})
    (item,) = await store.list(Filters())
    assert item.ref == REF
    assert "members" in item.problem
    with pytest.raises(StoreCorrupt):
        await store.get(REF)
    await connection.close()


async def test_missing_passages_are_reported_and_written_again() -> None:
    connection = LocalQdrant()
    store = QdrantVectorStore(connection, "shared")
    await store.put([batch(OLD)])
    (head,) = await connection.call("retrieve", "shared", [payload.head_id(REF.item_id)])
    first = payload.passage_id(REF.item_id, head.payload["generation"], 0)
    await connection.call("delete", "shared", [first])
    assert sorted(await texts_of(store, "zebra")) == sorted(OLD[1:])
    assert (await store.status()).problems == ("1 passages are missing: index it again",)
    await store.put([batch(OLD)])
    assert await seen_by_a_reader(store) == (1, 3, sorted(OLD))
    await connection.close()


async def test_points_of_somebody_else_are_no_hits() -> None:
    connection = LocalQdrant()
    store = QdrantVectorStore(connection, "shared")
    await store.put([batch(OLD)])
    vector = {"dense": unit_vector(0).tolist()}
    (head, *_) = [point for point in await every_point(connection) if point.payload["kind"] == "head"]
    (passage, *_) = [point for point in await every_point(connection) if point.payload["kind"] == "passage"]
    copied = passage.payload | {"passage": {**passage.payload["passage"], "text": "zebra zebra"}}
    foreign = {"kind": "passage", "item_id": "acme/deploy", "generation": head.payload["generation"]}
    for number, fields in enumerate([{}, {"kind": "passage"}, foreign, copied]):
        point = models.PointStruct(id=number, vector=vector, payload=fields)
        await connection.call("upsert", "shared", [point])
    found = await store.search(query("zebra", await store.statistics(query_terms("zebra"))))
    assert sorted(c.passage.text for c in found.items) == sorted(OLD)
    assert {str(hit.ref) for hit in found.refused} == {"document:acme/deploy", "knowledge:unreadable"}
    assert {hit.code for hit in found.refused} == {"corrupt"}
    await connection.close()


async def test_a_head_that_was_not_requested_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = LocalQdrant()
    store = QdrantVectorStore(connection, "shared")
    await store.put([batch(OLD)])
    await store.put([batch(["other"], path="acme/other")])
    heads = [point for point in await every_point(connection) if point.payload["kind"] == "head"]
    foreign = heads[0].model_copy(update={"id": "00000000-0000-0000-0000-000000000000"})

    async def more(retrieve: Call) -> list[Any]:
        return [foreign, *await retrieve()]

    around(monkeypatch, "retrieve", more)
    found = await store.search(query("zebra", await store.statistics(query_terms("zebra"))))
    assert sorted(c.passage.text for c in found.items) == sorted([*OLD, "other"])
    assert [hit.code for hit in found.refused] == ["corrupt"]
    await connection.close()


async def test_passages_under_no_head_are_no_hits() -> None:
    """A forged passage under the right id of a generation that no head names, and one of a path without a head."""
    connection = LocalQdrant()
    store = QdrantVectorStore(connection, "shared")
    await store.put([batch(OLD)])
    for path in ("acme/deploy", "acme/ghost"):
        (point, *_) = qdrant.passage_points(batch(["zebra forged"]), payload.DocumentHead(path, 9, "9-forged"))
        point.payload |= {"kind": "passage", "item_id": path}
        point.id = payload.passage_id(path, "9-forged", 0)
        await connection.call("upsert", "shared", [point])
    found = await store.search(query("zebra", await store.statistics(query_terms("zebra"))))
    assert sorted(c.passage.text for c in found.items) == sorted(OLD)
    assert (await store.status()).problems == ("2 passages belong to no document: index it again",)
    await connection.close()


async def test_the_words_leg_is_qdrants_own_order() -> None:
    """Rare words count more than common ones (IDF), repeated ones more than single ones, long passages less."""
    with QdrantServer() as server:
        for connection in (LocalQdrant(), QdrantConnection(server.url)):
            store = QdrantVectorStore(connection, "shared")
            for n in range(6):
                await store.put([batch([f"deploy the queue number {n}"], path=f"acme/common-{n}")])
            long = " ".join(["canary", *["filler"] * 60])
            texts = ["canary twice canary", "canary once again", long, "nothing of it"]
            await store.put([batch(texts, path="acme/rare")])
            found = await texts_of(store, "deploy canary")
            assert found[:2] == texts[:2]
            assert set(found) == {*texts[:3], *(f"deploy the queue number {n}" for n in range(6))}
            assert (await texts_of(store, "canary")) == texts[:3]
            await store.close()


async def test_a_passage_has_the_scores_of_the_legs_that_found_it() -> None:
    store = QdrantVectorStore(LocalQdrant(), "shared")
    await store.put([batch(OLD)])  # vectors 9, 10, 11
    await store.put([records_of(document("acme/other", ["giraffe"]), seed=500)])
    asked = query("giraffe", await store.statistics(query_terms("giraffe")), seed=9, depth=1)
    found = {c.passage.text: c for c in (await store.search(asked)).items}
    assert found.keys() == {OLD[0], "giraffe"}
    assert (found[OLD[0]].cosine, found[OLD[0]].bm25) == (pytest.approx(1, abs=1e-5), 0)
    assert found["giraffe"].cosine == NOT_FOUND_BY_VECTOR
    assert found["giraffe"].bm25 > 0
    assert not store.capabilities.scores
    await store.close()


PATHS = {
    "README.md": {},
    "docs/adr/0001-queue.md": {"file_type": "adr", "service": "svc-check-in"},
    "docs/adr/0002-[draft].md": {"file_type": "adr"},
    "docs/adr.md": {},
    "services/check-in/openapi.yaml": {"file_type": "openapi", "service": "svc-check-in", "domain": "Operations"},
    "services/check_in/Main.java": {"file_type": "java", "service": "svc-check-in", "domain": "Operations"},
}


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (Filters(), 6),
        (Filters(item_type=ItemType.DOCUMENT), 6),
        (Filters(item_type=ItemType.DIRECTIVE), 0),
        (Filters(file_type="adr"), 2),
        (Filters(service="svc-check-in", domain="Operations"), 2),
        (Filters(path="docs/adr"), 2),
        (Filters(path="docs/adr/"), 2),
        (Filters(path="docs/*"), 3),
        (Filters(path="*.md"), 4),
        (Filters(path="*check?in*"), 2),
        (Filters(path="docs/adr/000?-*.md", file_type="adr"), 2),
        (Filters(path="docs/adr/0002-[draft].md"), 1),
        (Filters(path="docs/adr/0002-[d*"), 1),
        (Filters(path="doc?"), 3),
        (Filters(path="Docs/*"), 0),
        (Filters(path="services/check-in"), 1),
    ],
    ids=str,
)
async def test_documents_are_found_by_what_they_are_and_where_they_stand(filters: Filters, count: int) -> None:
    store = QdrantVectorStore(LocalQdrant(), "shared")
    for path, labels in PATHS.items():
        await store.put([records_of(document(path, [f"the queue of {path}", "more of it"], labels=labels))])
    found = (await store.search(query("queue", await store.statistics(query_terms("queue")), filters=filters))).items
    listed = await store.list(filters)
    assert len(listed) == count
    assert {c.ref.item_id for c in found} == {item.ref.item_id for item in listed}
    assert len(found) == 2 * count
    await store.close()


async def test_requests_hold_the_key_and_nothing_is_sent_without_it() -> None:
    with QdrantServer(api_key=API_KEY) as server:
        wrong = QdrantVectorStore(QdrantConnection(server.url, "wrong"), "shared")
        with pytest.raises(StoreRefused, match="Must provide an API key"):
            await wrong.put([batch(OLD)])
        right = QdrantVectorStore(QdrantConnection(server.url, API_KEY), "shared")
        await right.put([batch(OLD)])
        assert {seen.headers.get("api-key") for seen in server.seen} == {"wrong", API_KEY}
        updates = [json.dumps(seen.body) for seen in server.seen if seen.path.endswith("points/batch")]
        assert len(updates) == 1
        await wrong.close()
        await right.close()


async def test_every_key_that_is_asked_for_has_an_index() -> None:
    with QdrantServer() as server:
        store = QdrantVectorStore(QdrantConnection(server.url), "shared")
        await store.put([batch(OLD)])
        assert server.collections["shared"].indexes == qdrant.INDEXES
        del server.collections["shared"].indexes["service"]
        assert (await store.status()).problems == ("payload indexes are missing: service",)
        with pytest.raises(StoreError, match="service"):
            await store.list(Filters(service="svc-x"))
        await store.put([records_of(document("acme/deploy", NEW, labels={"service": "svc-x"}))])
        assert [item.ref.item_id for item in await store.list(Filters(service="svc-x"))] == ["acme/deploy"]
        await store.close()


async def test_an_item_is_refused_and_never_there() -> None:
    store = QdrantVectorStore(LocalQdrant(), "shared")
    await store.put([batch(OLD)])
    with pytest.raises(UsageError, match="not a document"):
        await store.put([batch(["other"], path="acme/other"), records(admission("acme/one"))])
    item = ItemRef(ItemType.DIRECTIVE, "acme/deploy")
    assert (await store.get(item), await store.delete(item), await store.history(item)) == (None, False, {})
    assert await seen_by_a_reader(store) == (1, 3, sorted(OLD))
    await store.close()


def test_ids_derive_from_content_and_place() -> None:
    assert len({payload.head_id(path) for path in ("a/b-c", "a/b_c", "a/B-c", "a/b-c")}) == 3
    places = [(path, turn, place) for path in ("a", "b") for turn in ("1-x", "2-x") for place in (0, 1)]
    assert len({payload.passage_id(*place) for place in places}) == 8


async def test_a_key_of_one_collection_is_enough_once_the_collection_is_there() -> None:
    with QdrantServer() as server:
        connection = QdrantConnection(server.url)
        await QdrantVectorStore(connection, "one", partition="harbour").put([batch(OLD)])
        assert server.collections["one"].indexes == {**qdrant.INDEXES, "partition": "keyword"}
        (index,) = (seen.body for seen in server.seen if (seen.body or {}).get("field_name") == "partition")
        assert index["field_schema"] == {"type": "keyword", "is_tenant": True}
        assert not any("idf" in str(vector) for vector in server.collections["one"].wanted.sparse_vectors.values())
        server.only = "one"
        quay = QdrantVectorStore(connection, "one", partition="quay")
        await quay.put([batch(NEW)])
        assert await seen_by_a_reader(quay) == (1, 2, sorted(NEW))
        with pytest.raises(StoreRefused, match="not granted"):
            await QdrantVectorStore(connection, "two", partition="quay").put([batch(NEW)])
        await quay.clear()
        assert await seen_by_a_reader(quay) == (0, 0, [])
        assert await seen_by_a_reader(QdrantVectorStore(connection, "one", partition="harbour")) == (1, 3, sorted(OLD))
        await connection.close()


async def test_every_request_for_points_names_the_partition() -> None:
    """Whatever is asked or written, by the conditions that arrive at the server and the points that it gets."""
    with QdrantServer() as server:
        store = QdrantVectorStore(QdrantConnection(server.url), "one", partition="quay")
        await store.put([batch(OLD)])
        await store.put([batch(NEW)])
        await texts_of(store, "zebra", filters=Filters(path="acme/*"))
        await store.similar_terms(["zebrq"])
        await store.list(Filters(signer="ada"))
        await store.get(REF)
        await store.status()
        await store.delete(REF)
        await store.clear()
        mine = {"key": "partition", "match": {"value": "quay"}}
        requests = [seen for seen in server.seen if "/points" in seen.path or seen.path.endswith("/facet")]
        assert {seen.path.removeprefix("/collections/one/") for seen in requests} == {
            "points", "points/batch", "points/count", "points/query/batch", "points/scroll", "facet",
        }  # fmt: skip
        ids = {str(payload.head_id(REF.item_id, "quay"))}
        for seen in requests:
            body = seen.body
            if seen.path.endswith("/points"):
                assert set(body["ids"]) == ids
                continue
            for one in body.get("searches") or body.get("operations") or [body]:
                part = next(iter(one.values())) if "operations" in body else one
                condition = part.get("update_filter") or part.get("filter")
                assert condition["must"][0] == mine, seen.path
                assert all(point["payload"]["partition"] == "quay" for point in part.get("points", []))
        await store.close()


async def test_a_collection_holds_partitions_or_one_index_and_not_both() -> None:
    connection = LocalQdrant()
    whole, part = QdrantVectorStore(connection, "a"), QdrantVectorStore(connection, "b", partition="quay")
    await whole.put([batch(OLD)])
    await part.put([batch(OLD)])
    for store, said in ((QdrantVectorStore(connection, "b"), "QDRANT_COLLECTION"),
                        (QdrantVectorStore(connection, "a", partition="quay"), "one index alone")):  # fmt: skip
        for call in (store.put([batch(NEW)]), store.list(Filters()), store.clear()):
            with pytest.raises(StoreCorrupt, match=said):
                await call
    assert await seen_by_a_reader(whole) == await seen_by_a_reader(part) == (1, 3, sorted(OLD))
    await connection.close()


async def test_a_cleared_collection_may_be_of_another_model() -> None:
    connection = LocalQdrant()
    store = QdrantVectorStore(connection, "shared")
    await store.clear()
    await store.put([batch(OLD)])
    await store.clear()
    assert not (await connection.call("get_collections")).collections
    await store.put([records_of(document("acme/two", ["two"]), fingerprint="other/1/384/mean/256")])
    assert (await store.status()).fingerprint == "other/1/384/mean/256"
    await connection.close()
