"""The public interface of the conversation memory, and the snippets of its specification over it."""

from __future__ import annotations

import logging
import os
import re
import runpy
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kiwi_rag.memory as api
from kiwi_rag.errors import ConfigError, Rejected, UsageError
from kiwi_rag.memory import (
    ChromaVectorStore,
    ContextRetriever,
    DocumentProcessor,
    Exchange,
    ExchangeStore,
    VectorDocument,
    VectorStoreConfig,
    create_embedding_provider,
    create_vector_store,
)
from tests.search_tiers import WordsProvider

START = datetime(2026, 11, 1, 9, tzinfo=UTC)
SNIPPETS = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[1] / "data/memory_snippets.md").read_text("utf-8"), re.DOTALL
)


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChromaVectorStore]:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = VectorStoreConfig(tmp_path / "memory", dynamic_threshold=False)
    async with ChromaVectorStore(config, WordsProvider()) as opened:
        yield opened


def exchange(number: int, user: str, assistant: str, session: str = "s1", **more: Any) -> Exchange:
    return Exchange(f"e{number}", session, user, assistant, START + timedelta(minutes=number), **more)


def test_the_names_of_the_interface_are_exact() -> None:
    assert all(hasattr(api, name) for name in api.__all__)
    own = {name for name, value in vars(api).items() if getattr(value, "__module__", "") == api.__name__}
    assert {name for name in own if not name.startswith("_")} <= {*api.__all__}


async def test_documents_are_stored_found_replaced_and_deleted(store: ChromaVectorStore) -> None:
    first = VectorDocument("n1", "The heron nests on the roof.", {"type": "note", "topic": "birds"})
    second = VectorDocument("n2", "The build takes nine minutes.", {"type": "note", "topic": "ci", "size": 9})
    assert await store.add([first, second]) == ["n1", "n2"]
    assert await store.count() == 2
    assert (await store.search("heron roof"))[0].document.id == "n1"
    assert [one.document.id for one in await store.search("heron", filter={"type": "note", "topic": "ci"})] == ["n2"]
    assert await store.get(["n2", "n9", "n1"]) == [second, first]
    await store.add([VectorDocument("n1", "The stork nests on the barn.", {"type": "note"})])
    assert await store.count() == 2
    assert (await store.get(["n1"]))[0].content == "The stork nests on the barn."
    await store.delete(["n1"])
    assert [one.document.id for one in await store.search("stork heron barn")] == ["n2"]
    await store.add([first])
    assert (await store.search("heron roof"))[0].document == first


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ({"size": {"$gt": 5}}, {"b"}), ({"size": {"$lte": 5}}, {"a"}),
        ({"$or": [{"size": 9}, {"kind": "x"}]}, {"a", "b"}),
        ({"$and": [{"size": 9}, {"kind": "x"}]}, set()), ({"kind": {"$in": ["x", "y"]}}, {"a"}),
        ({"kind": {"$nin": ["x"]}}, {"b"}), ({"kind": {"$ne": "x"}, "size": {"$gte": 9}}, {"b"}),
        ({"size": {"$lt": "text"}}, set()), ({"nothing": 1}, set()),
    ],
)  # fmt: skip
async def test_a_filter_may_be_any_of_chromas(store: ChromaVectorStore, where: dict[str, Any], ids: set[str]) -> None:
    await store.add(
        [VectorDocument("a", "one text", {"size": 1, "kind": "x"}), VectorDocument("b", "one text more", {"size": 9})]
    )
    assert {one.document.id for one in await store.search("text", filter=where)} == ids


async def test_what_cannot_be_meant_is_refused(store: ChromaVectorStore) -> None:
    await store.add([VectorDocument("a", "text")])
    with pytest.raises(UsageError, match=r"no operator \$near"):
        await store.search("text", filter={"size": {"$near": 1}})
    with pytest.raises(UsageError, match="embedded by the store"):
        await store.add([VectorDocument("v", "text", embedding=[1.0])])
    with pytest.raises(Rejected) as refused:
        await store.add([VectorDocument("x", "text", {"size": float("nan")})])
    assert [one.code for one in refused.value.findings] == ["exchange.json"]
    assert await store.count() == 1


@pytest.mark.parametrize(
    "given",
    [
        {"backend": "faiss"}, {"retrieval_strategy": "magic"}, {"chunking_strategy": "x"}, {"embedding_provider": "x"},
        {"colour": 1}, {"collection_name": "../x"}, {"chunk_size": 2000},
    ],
)  # fmt: skip
def test_a_setting_without_effect_is_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        VectorStoreConfig.of(given)


def test_chunks_end_where_the_settings_say() -> None:
    text = "One sentence here. Another sentence there. " * 30
    size = {"chunk_size": 100, "chunk_overlap": 0}
    assert all(one.endswith(". ") for one in VectorStoreConfig(**size).chunker.split(text)[:-1])
    for changed in ({"preserve_sentence_boundaries": False}, {"chunking_strategy": "fixed"}):
        assert not all(one.endswith(". ") for one in VectorStoreConfig(**size, **changed).chunker.split(text)[:-1])
    assert {len(one) for one in VectorStoreConfig(**size, chunking_strategy="fixed").chunker.split(text)[:-1]} == {100}


async def test_a_source_keeps_no_chunk_of_its_former_text(store: ChromaVectorStore) -> None:
    processor = DocumentProcessor(VectorStoreConfig(chunk_size=100, chunk_overlap=0).chunker, store, whole=100)
    ids = await processor.add_document("word " * 100, "notes.md", {"team": "a"})
    assert ids == [f"notes.md:{number}" for number in range(len(ids))] and len(ids) > 3
    assert (await store.get(ids[1:2]))[0].metadata == {
        "team": "a", "source": "notes.md", "total_chunks": len(ids), "chunk_index": 1,
    }  # fmt: skip
    assert await processor.add_document("short", "notes.md") == ["notes.md:0"]
    assert await store.count() == 1
    assert await processor.add_document("", "notes.md") == []
    assert await store.count() == 0


async def test_settings_of_the_retrieval_act(tmp_path: Path, store: ChromaVectorStore) -> None:
    exchanges = ExchangeStore(store)
    for number in range(9):
        await exchanges.add_exchange(exchange(number, f"question {number} on topic{number}", f"answer {number}"))
    for window, count in ((0, 1), (1, 3), (2, 5)):
        config = VectorStoreConfig(tmp_path, search_context_window=window, dynamic_threshold=False)
        (found,) = await ContextRetriever(exchanges, config).get_relevant_context("topic4", max_results=1)
        assert found.count("<recalled-memory") == count
    store.config = replace(store.config, context_results=2)
    assert len(await exchanges.search_exchanges("question")) == len(await store.search("question")) == 2
    assert len(await store.search("question", n_results=4)) == 4
    strict = VectorStoreConfig(tmp_path, similarity_threshold=1.0)
    assert await ContextRetriever(exchanges, strict).get_relevant_context("topic4") == []


async def test_an_empty_store_finds_nothing(store: ChromaVectorStore) -> None:
    assert await store.search("anything") == [] and await store.count() == 0
    assert await ContextRetriever(ExchangeStore(store)).get_relevant_context("anything") == []


def test_a_disabled_store_is_none_and_a_provider_is_made_by_name(tmp_path: Path) -> None:
    assert create_vector_store(VectorStoreConfig(tmp_path, enabled=False)) is None
    config = VectorStoreConfig(
        tmp_path, embedding_provider="openai", embedding_model="text-embedding-3-small", embedding_dimensions=1536
    )
    assert create_embedding_provider(config).fingerprint.dimension == 1536


@pytest.fixture
def specified() -> dict[str, Any]:
    """The classes and functions of the specification, with imports of this interface in place of its own."""
    names: dict[str, Any] = {
        **vars(api), "Callable": Callable, "datetime": datetime, "ConfigurationError": ConfigError, "os": os,
        "CatoConfig": SimpleNamespace, "logger": logging.getLogger("test"), "EmbeddingConfig": SimpleNamespace,
        "OpenAIEmbeddingProvider": lambda _: WordsProvider(),
    }  # fmt: skip
    for snippet in SNIPPETS[:-1]:
        exec(compile(snippet, "memory_snippets.md", "exec", dont_inherit=True), names)
    return names


def test_the_specified_start_makes_a_store_if_it_is_enabled(tmp_path: Path, specified: dict[str, Any]) -> None:
    def start(**given: Any) -> Any:
        settings = VectorStoreConfig(tmp_path / "memory", embedding_provider="openai", **given)
        return specified["create_vector_store"](SimpleNamespace(vector_store=settings))

    assert isinstance(start(), ChromaVectorStore)
    assert start(enabled=False) is None


async def test_the_specified_exchange_store_works_over_the_store(
    store: ChromaVectorStore, specified: dict[str, Any]
) -> None:
    exchanges = specified["ExchangeStore"](store)
    for number, (session, text) in enumerate([("s1", "error handling in python"), ("s2", "error handling in rust")]):
        made = specified["Exchange"](
            id=f"e{number}", session_id=session, thread_id="t", user_message=text, assistant_message="Catch it.",
            timestamp=START, prior_exchange_ids=[], thread_session_id=session, thread_continuation_seq=0,
            metadata={"project": "kiwi"},
        )  # fmt: skip
        assert await exchanges.add_exchange(made) == f"e{number}"
    found = await exchanges.search_exchanges("python error handling", session_id="s1", thread_id="t")
    assert [one.document.id for one in found] == ["e0"]
    assert found[0].document.content == "User: error handling in python\n\nAssistant: Catch it."
    assert found[0].document.metadata["project"] == "kiwi"
    both = await exchanges.search_exchanges("python error handling", n_results=2)
    assert [one.document.id for one in both] == ["e0", "e1"] and both[0].score > both[1].score
    context = specified["ContextRetriever"](exchanges, store.config)
    assert await context.get_relevant_context("python", max_results=1) == [found[0].document.content]
    assert await context.get_relevant_context("python", max_tokens=3) == []


async def test_the_specified_processor_and_filter_work_over_the_store(
    store: ChromaVectorStore, specified: dict[str, Any]
) -> None:
    processor = specified["DocumentProcessor"](api.TextChunker(60, 10), store)
    ids = await processor.add_document("Herons fish at dawn. " * 9, "birds.md")
    assert len(ids) > 2 and await store.count() == len(ids)
    await ExchangeStore(store).add_exchange(exchange(1, "python error handling", "With try.", "now"))
    await ExchangeStore(store).add_exchange(exchange(2, "python error handling?", "With except.", "then"))
    body = "\n".join(f"    {line}" for line in SNIPPETS[-1].splitlines())
    names: dict[str, Any] = {"store": store, "current_session": "now"}
    exec(f"async def search():\n{body}\n    return results", names)
    assert [one.document.id for one in await names["search"]()] == ["e1"]


def test_the_example_finds_what_it_stored(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "examples/memory.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert shown.count("Port 5433") == 2 and shown.count("<recalled-memory") == 2 and "herons" not in shown
