"""The index in Weaviate: its class, writers that meet or break off, servers that fail or lie."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import grpc
import numpy as np
import pytest

from kiwi_rag.errors import (
    ConfigError,
    FingerprintMismatch,
    KiwiError,
    StoreCorrupt,
    StoreError,
    StoreRefused,
    StoreUnreachable,
    UsageError,
)  # fmt: skip
from kiwi_rag.lexical import query_terms
from kiwi_rag.model import CollectionStatistics, EmbeddingRecord, Filters
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.stores import payload, weaviate, weaviate_connection, weaviate_schema
from kiwi_rag.stores.base import NOT_FOUND_BY_VECTOR
from kiwi_rag.stores.weaviate import WeaviateConnection, WeaviateVectorStore
from tests.conformance.documents import document, records_of
from tests.conformance.items import FINGERPRINT, admission, query, records
from tests.examples import size
from tests.stand_in import API_KEY, Failure, Seen
from tests.weaviate_engine import Stored, WeaviateClass
from tests.weaviate_server import WeaviateServer

OLD = ["zebra one", "zebra two", "zebra three"]
NEW = ["giraffe one", "giraffe two"]
REF = ItemRef(ItemType.DOCUMENT, "acme/deploy")
CLASS = "KiwiDocument_shared"


@pytest.fixture(scope="module")
def shared_server() -> Iterator[WeaviateServer]:
    with WeaviateServer() as server:
        yield server


@pytest.fixture
def server(shared_server: WeaviateServer) -> WeaviateServer:
    """A server without classes and failures."""
    one = shared_server
    one.classes, one.version, one.api_key, one.before = {}, "1.33.0", "", lambda _: None
    one.failures.clear()
    one.grpc_failures.clear()
    one.seen.clear()
    one.grpc_seen.clear()
    return one


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weaviate, "WRITING", (0.01, 0.01))
    monkeypatch.setattr(WeaviateVectorStore, "starting", (0.01, 0.01))


def connect(server: WeaviateServer, **options: Any) -> WeaviateConnection:
    return WeaviateConnection(server.url, options.pop("key", ""), grpc_url=server.grpc_url, **options)


def batch(texts: Sequence[str], path: str = "acme/deploy") -> list[EmbeddingRecord]:
    return records_of(document(path, texts), seed=len(texts[0]))


async def seen_by_a_reader(store: WeaviateVectorStore) -> list[str]:
    """The texts that a search finds, all of them verified as far as a store does it."""
    words = "zebra giraffe"
    found = await store.search(query(words, CollectionStatistics(9, 9, {"zebra": 3, "giraff": 2})))
    assert not found.refused
    return sorted(c.passage.text for c in found.items)


def kinds(server: WeaviateServer, name: str = CLASS) -> dict[str, int]:
    return dict(Counter(one.properties["kind"] for one in server.classes[name].objects.values()))


def test_every_collection_has_a_class_of_its_own_whatever_it_is_called() -> None:
    names = ["a-b", "a_b", "a_2d_b", "ab", "a", "A", "-", "_", "a-", "é", "a" * 64, "-" * 64, "_" * 64, "-" * 63 + "_",
             "-" * 400, "-" * 401, "x" * 400, "x" + "0" * 63]  # fmt: skip
    classes = [weaviate_schema.class_name(name) for name in names]
    assert len({one.lower() for one in classes}) == len(names)
    assert all(re.fullmatch("KiwiDocument_[_0-9a-z]+", one) and len(one) <= 255 for one in classes)
    assert classes[0] == "KiwiDocument_a_2d_b"


async def test_a_class_is_made_once_as_specified_and_checked_afterwards(server: WeaviateServer) -> None:
    store = WeaviateVectorStore(connect(server), "shared")
    assert (await store.list(Filters()), await store.delete(REF)) == ([], False)
    assert "no class KiwiDocument_shared yet" in (await store.status()).problems[0]
    assert not server.classes, "reading makes nothing"
    for _ in range(2):
        await store.ensure_created(FINGERPRINT, 384)
    schema = server.classes[CLASS].schema
    properties = {one["name"]: one for one in schema["properties"]}
    assert {"docId", SEARCHED := "searchText", "projectId", "filePath", "commitSha", "chunkRange", "title",
            "language"} <= properties.keys()  # fmt: skip
    assert properties[SEARCHED]["tokenization"] == "whitespace"
    assert schema["vectorConfig"]["dense"]["vectorizer"] == {"none": {}}
    assert schema["vectorConfig"]["dense"]["vectorIndexConfig"]["distance"] == "cosine"
    assert [seen.method for seen in server.seen if seen.path == "/v1/schema"] == ["POST"]
    for model in (("other/1/384", 384), (FINGERPRINT, 512)):
        with pytest.raises(FingerprintMismatch):
            await store.ensure_created(*model)

    properties["terms"]["tokenization"] = "word"
    schema["properties"].remove(properties["service"])
    schema["vectorConfig"]["dense"]["vectorIndexConfig"]["distance"] = "dot"
    for call in (store.ensure_created(FINGERPRINT, 384), store.put([batch(OLD)]), store.list(Filters())):
        with pytest.raises(StoreCorrupt) as caught:
            await call
        told = "'service' is missing; 'terms' is of another kind; 'dense' is of another kind"
        assert caught.value.message == f"the class {CLASS} was changed: {told}"
    await store.close()


async def test_a_class_that_kiwi_did_not_make_is_left_alone(server: WeaviateServer) -> None:
    store = WeaviateVectorStore(connect(server), "shared")
    await store.put([batch(OLD)])
    for description in ("", "{}", '{"kiwi": []}', server.classes[CLASS].schema["description"].replace("100", "99")):
        server.classes[CLASS].schema["description"] = description
        for call in (store.put([batch(NEW)]), store.search(query("x", CollectionStatistics())), store.clear()):
            with pytest.raises(StoreCorrupt, match="did not make"):
                await call
    assert kinds(server) == {"passage": 3, "head": 1}
    await store.close()


async def test_two_writers_make_one_class(server: WeaviateServer) -> None:
    stores = [WeaviateVectorStore(connect(server), "shared") for _ in range(2)]
    await asyncio.gather(*(store.put([batch(OLD, path=f"acme/{n}")]) for n, store in enumerate(stores)))
    assert [seen.path for seen in server.seen].count("/v1/schema") in (1, 2)
    assert kinds(server) == {"passage": 6, "head": 2}
    for store in stores:
        await store.close()


async def test_objects_hold_what_other_readers_look_for(server: WeaviateServer) -> None:
    store = WeaviateVectorStore(connect(server), "shared")
    await store.put([records_of(document("docs/a.md", ["the zebra", "deploy_staging"], labels={"file_type": "adr"}))])
    (first,) = (one for one in server.classes[CLASS].objects.values() if one.properties.get("chunkRange") == "1:1")
    found = first.properties
    assert {name: found[name] for name in ("projectId", "filePath", "chunkRange", "title", "language")} == {
        "projectId": "shared", "filePath": "docs/a.md", "chunkRange": "1:1", "title": "Top", "language": "adr",
    }  # fmt: skip
    assert found["docId"] == payload.head_id("docs/a.md")
    assert "zebra" in found["searchText"].split() and found["length"] == 2
    await store.close()


def impatient(store: WeaviateVectorStore, seconds: float = 0) -> WeaviateVectorStore:
    """The store, which takes writes for broken off that began so many seconds ago."""
    store.broken_off_seconds = seconds
    return store


class Broken(Exception):
    """The writer's process ended here."""


def around(
    monkeypatch: pytest.MonkeyPatch, store: WeaviateVectorStore, wrapper: Callable[[Callable[[], Awaitable[Any]]], Any]
) -> None:
    """Run `wrapper` in place of every write of a store; it is given the call to make."""
    for name in ("_upsert", "_remove"):
        call = getattr(store, name)

        async def wrapped(*arguments: Any, call: Any = call) -> Any:
            return await wrapper(lambda: call(*arguments))

        monkeypatch.setattr(store, name, wrapped)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 6))  # the note, two groups of passages, the head, what is removed
async def test_a_writer_that_breaks_off_leaves_the_old_or_the_new_and_the_next_one_sweeps(
    server: WeaviateServer, at: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WeaviateVectorStore, "passages_at_once", 1)
    connection = connect(server)
    store, other = (impatient(WeaviateVectorStore(connection, "shared"), 0) for _ in range(2))
    await other.put([batch(OLD)])
    number = 0

    async def breaking(write: Callable[[], Awaitable[Any]]) -> None:
        nonlocal number
        number += 1
        if number < at or after:
            await write()
        if number == at:
            raise Broken

    around(monkeypatch, store, breaking)
    with pytest.raises(Broken):
        await store.put([batch(NEW)])
    assert await seen_by_a_reader(other) == sorted(NEW if (at, after) >= (4, True) else OLD)
    broken = not (at == 1 and not after)
    assert any("broke off" in problem for problem in (await other.status()).problems) is broken

    await other.put([batch(["other"], path="acme/other")])
    assert (await other.status()).problems == ()
    assert kinds(server).keys() == {"head", "passage"}
    await other.put([batch(NEW)])
    assert await seen_by_a_reader(other) == sorted([*NEW, "other"])
    assert kinds(server) == {"passage": 3, "head": 2}
    await connection.close()


@pytest.mark.parametrize("noted_seconds", [120, 0])
@pytest.mark.parametrize("seed", range(size(8)))
async def test_writers_that_meet_everywhere_leave_every_document_whole(
    server: WeaviateServer, seed: int, noted_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 0 seconds writers take each other for broken off, and remove what others are about to publish."""
    monkeypatch.setattr(WeaviateVectorStore, "tries", 100)
    connection, chosen = connect(server), random.Random(seed)
    stores = [impatient(WeaviateVectorStore(connection, "shared"), noted_seconds) for _ in range(3)]

    async def yielding(write: Callable[[], Awaitable[Any]]) -> None:
        for _ in range(chosen.randrange(5)):
            await asyncio.sleep(0.001)
        await write()

    for store in stores:
        around(monkeypatch, store, yielding)

    async def write(number: int) -> None:
        await stores[number].put([batch([f"own {number}", "more of it"], path=f"acme/own-{number}")])
        for _ in range(3):
            if chosen.random() < 0.2:
                await stores[number].delete(REF)
            else:
                await stores[number].put([batch(chosen.choice([OLD, NEW]))])
            if noted_seconds:
                seen = [text for text in await seen_by_a_reader(stores[0]) if text in OLD + NEW]
                assert seen in ([], sorted(OLD), sorted(NEW))

    await asyncio.gather(*(write(number) for number in range(3)))
    for number in range(3):
        await stores[0].put([batch([f"own {number}", "more of it"], path=f"acme/own-{number}")])
    await stores[0].put([batch(OLD)])
    status = await stores[0].status()
    assert (status.items, status.passages, status.problems) == (4, 9, ())
    assert kinds(server) == {"head": 4, "passage": 9}
    await connection.close()


async def test_a_reader_between_the_steps_of_a_writer_sees_the_old_document_whole(
    server: WeaviateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the passages of the new one would take all places of a leg."""
    connection = connect(server)
    store, reader = (WeaviateVectorStore(connection, "shared") for _ in range(2))
    await reader.put([batch(OLD)])
    looked = []

    async def looking(write: Callable[[], Awaitable[Any]]) -> None:
        await write()
        asked = query("zebra", await reader.statistics(["zebra"]), seed=50, depth=1)
        found = await reader.search(asked)
        looked.append({c.passage.text for c in found.items})
        assert (await reader.status()).problems == ()

    around(monkeypatch, store, looking)
    await store.put([records_of(document("acme/deploy", ["zebra zebra", "zebra zebra zebra"]), seed=50)])
    new = {"zebra zebra", "zebra zebra zebra"}
    assert [bool(texts & new) for texts in looked] == [False, False, True, True, True]
    assert all(texts and texts <= set(OLD) for texts in looked[:2])
    await connection.close()


@pytest.mark.parametrize(("at", "after"), [(2, True), (3, True), (4, False)])  # passages, head, the note's removal
async def test_of_two_writers_the_later_head_counts_and_the_first_does_not_write_again(
    server: WeaviateServer, at: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connect(server)
    first, second = (WeaviateVectorStore(connection, "shared") for _ in range(2))
    number = 0

    async def overtaken(write: Callable[[], Awaitable[Any]]) -> None:
        nonlocal number
        number += 1
        if number != at:
            return await write()
        for step in (write, lambda: second.put([batch(NEW)]))[:: 1 if after else -1]:
            await step()

    around(monkeypatch, first, overtaken)
    await first.put([batch(OLD)])
    texts = OLD if at == 2 else NEW
    assert await seen_by_a_reader(second) == sorted(texts)
    assert kinds(server) == {"head": 1, "passage": len(texts)}
    await connection.close()


async def test_a_long_list_is_read_page_by_page_and_a_long_document_in_groups(
    server: WeaviateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WeaviateVectorStore, "page", 2)
    monkeypatch.setattr(WeaviateVectorStore, "passages_at_once", 3)
    store = WeaviateVectorStore(connect(server), "shared")
    await store.put([batch([f"text {n}" for n in range(2)], path=f"acme/{name}") for name in "abcd"])
    listed = [one.ref.item_id for one in await store.list(Filters())]
    assert listed == [f"acme/{name}" for name in "abcd"]
    writes = [request for call, request in server.grpc_seen if call == "batch_objects"]
    assert [len(request.objects) for request in writes] == [4, 3, 3, 2, 4]
    server.grpc_seen.clear()
    await store.put([batch([f"text {n}" for n in range(2)], path=f"acme/{name}") for name in "abcd"])
    assert "batch_objects" not in {call for call, _ in server.grpc_seen}, "nothing changed"
    await store.close()


async def test_a_server_that_starts_is_waited_for(server: WeaviateServer) -> None:
    store = WeaviateVectorStore(connect(server), "shared")
    server.failures.extend([Failure(503), Failure()])
    await store.put([batch(OLD)])
    assert await seen_by_a_reader(store) == sorted(OLD)
    await store.close()
    server.failures.extend([Failure(503)] * 3)
    with pytest.raises(StoreUnreachable, match="not ready"):
        await store.search(query("x", CollectionStatistics()))


async def test_no_server_is_an_error_and_never_an_empty_answer() -> None:
    with WeaviateServer() as gone:
        url, grpc_url = gone.url, gone.grpc_url
    store = WeaviateVectorStore(WeaviateConnection(url, "s3cret-key", grpc_url=grpc_url), "shared")
    for call in (store.search(query("x", CollectionStatistics())), store.statistics(["x"]), store.list(Filters()),
                 store.get(REF), store.status(), store.put([batch(OLD)])):  # fmt: skip
        with pytest.raises(StoreUnreachable) as caught:
            await call
        assert "cannot be reached" in caught.value.message and "KIWI_WEAVIATE_URL" in caught.value.hint
        assert "s3cret" not in f"{caught.value!r} {caught.value.__cause__!r}"


async def test_a_closed_grpc_port_is_named_at_once(server: WeaviateServer) -> None:
    connection = WeaviateConnection(server.url, grpc_url="http://127.0.0.1:1")
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:1, for gRPC \(KIWI_WEAVIATE_GRPC_URL\)"):
        await WeaviateVectorStore(connection, "shared").status()


async def test_a_server_that_fails_or_hangs_over_grpc_gives_no_empty_answer(server: WeaviateServer) -> None:
    connection = connect(server)
    connection.seconds = 0.3
    store = WeaviateVectorStore(connection, "shared")
    await store.put([batch(OLD)])
    status = grpc.StatusCode
    cases = [(status.UNAVAILABLE, StoreUnreachable), (status.DEADLINE_EXCEEDED, StoreUnreachable),
             (status.UNAUTHENTICATED, StoreRefused), (status.PERMISSION_DENIED, StoreRefused),
             (status.UNKNOWN, StoreError)]  # fmt: skip
    for code, kind in cases:
        for call in (store.search(query("x", CollectionStatistics())), store.statistics(["x"]), store.list(Filters())):
            server.grpc_failures.extend([code] * 9)
            with pytest.raises(kind):
                await call
            server.grpc_failures.clear()
        server.grpc_failures.extend([code] * 9)
        with pytest.raises(kind):
            await store.put([batch(NEW)])
        server.grpc_failures.clear()
    assert await seen_by_a_reader(store) == sorted(OLD)
    await store.close()


ANSWERS: dict[str, tuple[Failure, type[KiwiError], str]] = {
    "key": (Failure(401, b'{"error": "bad key s3cret-key"}'), StoreRefused, "(hidden)"),
    "forbidden": (Failure(403, b'{"error": "s3cret-key"}'), StoreRefused, "(hidden)"),
    "redirect": (Failure(307, b"", {"location": "http://127.0.0.1:1/"}), StoreError, "redirect"),
    "page": (Failure(200, b"<html>Welcome s3cret-key</html>"), StoreError, "not a weaviate server"),
    "json": (Failure(200, b'["s3cret-key"]'), StoreError, "not a weaviate server"),
    "broken": (Failure(500, b'{"error": "s3cret-key"}'), StoreError, "(hidden)"),
    "gateway": (Failure(502), StoreUnreachable, "reached"),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_what_else_a_server_answers_is_told_and_holds_no_key(server: WeaviateServer, name: str) -> None:
    failure, kind, words = ANSWERS[name]
    store = WeaviateVectorStore(connect(server, key="s3cret-key"), "shared")
    await store.put([batch(OLD)])
    server.failures.extend([failure] * 2)
    with pytest.raises(kind) as caught:
        await store.search(query("x", CollectionStatistics()))
    assert words in caught.value.message.lower()
    assert "s3cret" not in f"{caught.value!r} {caught.value.hint} {caught.value.__cause__!r}"
    await store.close()


async def test_the_key_is_sent_and_a_wrong_one_refused(server: WeaviateServer) -> None:
    server.api_key = API_KEY
    wrong, right = (WeaviateVectorStore(connect(server, key=key), "shared") for key in ("wrong", API_KEY))
    with pytest.raises(StoreRefused, match="did not accept the key"):
        await wrong.put([batch(OLD)])
    await right.put([batch(OLD)])
    assert await seen_by_a_reader(right) == sorted(OLD)
    await right.close()


@pytest.mark.parametrize(
    ("version", "said"), [("1.28.4", "1.29 or newer"), ("1.20.0", "1.27.0 or higher"), ("nginx", "not a Weaviate")]
)
async def test_an_old_server_is_told(server: WeaviateServer, version: str, said: str) -> None:
    server.version = version
    with pytest.raises(StoreError, match=said):
        await WeaviateVectorStore(connect(server), "shared").status()


@pytest.mark.parametrize(
    "url", ["http://weaviate.example:8080", "https://user:secret@host", "https://", "ftp://host", "https://h:99999"]
)
def test_a_key_goes_over_tls_or_to_this_machine(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WeaviateConnection(url, "s3cret-key")
    assert "secret" not in caught.value.message
    with pytest.raises(ConfigError, match="TLS"):
        WeaviateConnection("https://weaviate.example", "s3cret-key", grpc_url="http://weaviate.example:50051")
    with pytest.raises(ConfigError):
        WeaviateConnection("https://weaviate.example", "two words")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:27501", ("127.0.0.1", 27502, False)),
        ("http://localhost:8080", ("localhost", 50051, False)),
        ("https://[::1]:8080", ("::1", 50051, True)),
        ("https://acme.c0.weaviate.cloud", ("acme.c0.weaviate.cloud", 50051, True)),
    ],
)
def test_the_grpc_interface_is_where_weaviate_has_it(url: str, address: tuple[str, int, bool]) -> None:
    assert weaviate_connection._parts(WeaviateConnection(url, "a-key")._grpc) == address


DAMAGE: dict[str, tuple[str, dict[str, Any]]] = {
    "no-digest": ("head", {"digest": None}),
    "metadata": ("head", {"metadata": "{"}),
    "type": ("head", {"item_type": "recipe"}),
    "other-path": ("head", {"item_id": "acme/victim"}),
    "no-such-path": ("head", {"item_id": "../../etc/passwd"}),
    "head-of": ("head", {"of": 1e9}),
    "no-generation": ("head", {"generation": ""}),
    "passage": ("passage", {"passage": "{"}),
    "deep": ("passage", {"passage": "[" * 100_000}),
    "text": ("passage", {"passage": '{"text": 7}'}),
    "other-document": ("passage", {"item_id": "beta/sound"}),
}


@pytest.mark.parametrize("name", DAMAGE)
async def test_what_cannot_be_read_is_refused_and_spoils_nothing_else(server: WeaviateServer, name: str) -> None:
    kind, changed = DAMAGE[name]
    store = WeaviateVectorStore(connect(server), "shared")
    await store.put([batch(OLD), batch(["a zebra elsewhere"], path="beta/sound")])
    statistics = await store.statistics(query_terms("zebra"))
    first = next(
        one for one in server.classes[CLASS].objects.values()
        if (one.properties["kind"], one.properties["item_id"]) == (kind, "acme/deploy")
    )  # fmt: skip
    first.properties |= changed
    found = await store.search(query("zebra", statistics))
    assert [c.ref.item_id for c in found.items if c.ref.item_id != "acme/deploy"] == ["beta/sound"]
    assert len(found.items) < 4 and found.refused
    assert all(hit.tier == "weaviate" and "malformed" in hit.reason for hit in found.refused)
    await store.list(Filters())
    await store.close()


async def test_passages_under_no_head_are_no_hits(server: WeaviateServer) -> None:
    """A copy under another id, and a forged passage of a generation that no head names."""
    store = WeaviateVectorStore(connect(server), "shared")
    await store.put([batch(OLD)])
    of: WeaviateClass = server.classes[CLASS]
    passage = next(one for one in of.objects.values() if one.properties["kind"] == "passage")
    of.put(Stored("00000000-0000-0000-0000-000000000000", dict(passage.properties), passage.vectors))
    forged = weaviate_schema.passage_objects(batch(["zebra forged"]), payload.DocumentHead("acme/deploy", 9, "9-x"), "")
    await store._upsert(forged)
    statistics = await store.statistics(query_terms("zebra"))
    found = await store.search(query("zebra", statistics, depth=2))
    assert {c.passage.text for c in found.items} < set(OLD)
    assert {hit.code for hit in found.refused} <= {"corrupt"}
    everything = await store.search(query("zebra", statistics))
    assert sorted(c.passage.text for c in everything.items) == sorted(OLD)
    assert [hit.code for hit in everything.refused] == ["corrupt"]
    assert (await store.status()).problems == ("2 passages belong to no document: index it again",)
    await store.close()


async def test_a_passage_has_the_scores_of_the_legs_that_found_it(server: WeaviateServer) -> None:
    store = WeaviateVectorStore(connect(server), "shared")
    await store.put([batch(OLD), records_of(document("acme/other", ["giraffe"]), seed=500)])
    asked = query("giraffe", await store.statistics(query_terms("giraffe")), seed=9, depth=1)
    found = {c.passage.text: c for c in (await store.search(asked)).items}
    assert found.keys() == {OLD[0], "giraffe"}
    assert (found[OLD[0]].cosine, found[OLD[0]].bm25) == (pytest.approx(1, abs=1e-5), 0)
    assert found["giraffe"].cosine == NOT_FOUND_BY_VECTOR
    assert found["giraffe"].bm25 > 0
    assert not store.capabilities.scores
    await store.close()


async def test_missing_passages_are_reported_and_written_again(server: WeaviateServer) -> None:
    store = WeaviateVectorStore(connect(server), "shared")
    await store.put([batch(OLD)])
    of = server.classes[CLASS]
    del of.objects[next(key for key, one in of.objects.items() if one.properties["kind"] == "passage")]
    assert (await store.status()).problems == ("1 passages are missing: index it again",)
    await store.put([batch(OLD)])
    assert await seen_by_a_reader(store) == sorted(OLD)
    assert kinds(server) == {"passage": 3, "head": 1}
    await store.close()


async def test_an_object_that_the_server_does_not_take_is_an_error(server: WeaviateServer) -> None:
    store = WeaviateVectorStore(connect(server), "shared")
    await store.put([batch(OLD)])
    one = next(one for one in server.classes[CLASS].objects.values() if one.vectors)
    one.vectors["dense"] = np.ones(3, np.float32)
    with pytest.raises(StoreError, match="length 384"):
        await store.put([batch(NEW)])
    assert "giraffe" not in str(await store.list(Filters()))
    await store.close()


async def test_an_item_is_refused_and_never_there(server: WeaviateServer) -> None:
    store = WeaviateVectorStore(connect(server), "shared")
    await store.put([batch(OLD)])
    with pytest.raises(UsageError, match="not a document"):
        await store.put([batch(["other"], path="acme/other"), records(admission("acme/one"))])
    item = ItemRef(ItemType.DIRECTIVE, "acme/deploy")
    assert (await store.get(item), await store.delete(item), await store.history(item)) == (None, False, {})
    assert kinds(server) == {"passage": 3, "head": 1}
    await store.close()


async def test_a_lost_answer_is_no_second_write(server: WeaviateServer) -> None:
    """A call over REST that is cut after the server did the work; gRPC's are retried by the client."""
    store = WeaviateVectorStore(connect(server), "shared")
    cut: list[str] = []

    def before(seen: Seen) -> None:
        if seen.method == "POST" and not cut:
            cut.append(seen.path)
            server.failures.append(Failure(after=True))

    server.before = before
    await store.put([batch(OLD)])
    assert cut == ["/v1/schema"]
    assert await seen_by_a_reader(store) == sorted(OLD)
    await store.close()
