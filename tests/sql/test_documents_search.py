"""Searching a workspace's documents in the registry: true scores, true filters, under anybody's statistics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import numpy as np
import psycopg
import pytest
from psycopg.types.json import Jsonb

from kiwi_rag.errors import UnknownFilter
from kiwi_rag.lexical import bm25, bm25_weights, query_terms, term_frequencies
from kiwi_rag.model import CollectionStatistics, EmbeddingRecord, Filters
from kiwi_rag.model.refs import ItemType
from kiwi_rag.registry.calls import translate_errors
from kiwi_rag.registry.pool import Connections
from kiwi_rag.signing import keys
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import SIGNED, query, unit_vector
from tests.sql.documents import WORKSPACE, enrol, records, registry_of_documents

WORDS = [
    "deploy",
    "rollback",
    "staging",
    "canary",
    "database",
    "restore",
    "alert",
    "pager",
    "latency",
    "retry",
    "queue",
]
EVE = keys.generate("eve")
TYPES, SERVICES = ("markdown", "openapi", "java"), ("svc-a", "svc-b", "")


@pytest.fixture(scope="module")
def held() -> dict[str, list[EmbeddingRecord]]:
    """Forty documents of one to four passages."""
    rng = np.random.default_rng(7)
    found = {}
    for n in range(40):
        texts = [" ".join(rng.choice(WORDS, size=rng.integers(3, 20))) for _ in range(rng.integers(1, 5))]
        path = f"{'docs' if n % 3 else 'src/main'}/file_{n:02d}.md"
        metadata = {"file_type": TYPES[n % 3], "service": SERVICES[n % 3], "domain": "ops" if n % 2 else "pay"}
        by = {"key": EVE, "principal": "eve"} if n % 4 == 0 else {}
        found[path] = records(path, texts, seed=10 * n, after=86400 * n, metadata=metadata, **by)
    return found


@pytest.fixture(scope="module")
def filled(held: dict[str, list[EmbeddingRecord]]) -> AsyncIterator[str]:
    """The URL of a registry that holds them all."""
    import asyncio

    async def fill(url: str) -> None:
        store = RegistryVectorStore(Connections(url), WORKSPACE)
        for found in held.values():
            await store.put([found])
        await store.close()

    with registry_of_documents() as url:
        with psycopg.connect(url) as connection:
            enrol(connection, EVE, "eve", "*")
        asyncio.run(fill(url))
        yield url


@pytest.fixture
async def store(filled: str) -> AsyncIterator[RegistryVectorStore]:
    opened = RegistryVectorStore(Connections(filled), WORKSPACE)
    yield opened
    await opened.close()


async def test_statistics_are_those_of_all_passages(
    store: RegistryVectorStore, held: dict[str, list[EmbeddingRecord]]
) -> None:
    counted = [term_frequencies(r.passage.indexed_text) for found in held.values() for r in found]
    asked = query_terms("canary database restore nowhere")
    assert await store.statistics(asked) == CollectionStatistics(
        len(counted),
        sum(c.total() for c in counted),
        {term: df for term in asked if (df := sum(term in c for c in counted))},
        len(held),
    )
    assert await store.statistics([]) == CollectionStatistics(len(counted), sum(c.total() for c in counted), {}, 40)


async def test_every_score_is_true(store: RegistryVectorStore, held: dict[str, list[EmbeddingRecord]]) -> None:
    """Against the formulas, in Python, under statistics of more than this workspace."""
    own = await store.statistics(query_terms("canary database restore"))
    merged = own + CollectionStatistics(1000, 9000, {"databas": 400, "canari": 3}, 300)
    asked = query("canary database restore", merged, seed=101, depth=10)
    found = await store.search(asked)
    weights = bm25_weights(merged, asked.terms)
    scores: dict[tuple[str, int], tuple[float, float]] = {}
    for path, document in held.items():
        for r in document:
            terms = term_frequencies(r.passage.indexed_text)
            words = bm25(terms, terms.total(), weights, merged.average_length)
            scores[path, r.passage.ordinal] = (float(r.vector @ asked.vector), words)
    for leg in (0, 1):
        best = sorted(scores, key=lambda key: -scores[key][leg])[:10]
        assert set(best) <= {(h.ref.item_id, h.passage.ordinal) for h in found.items}
    assert 10 <= len(found.items) <= 20
    for hit in found.items:
        siblings = held[hit.ref.item_id]
        cosine, words = scores[hit.ref.item_id, hit.passage.ordinal]
        assert hit.cosine == pytest.approx(cosine, abs=1e-5)
        assert hit.bm25 == pytest.approx(words, abs=1e-9)
        cosines = [scores[hit.ref.item_id, n][0] for n in range(len(siblings))]
        mean = np.sum([r.vector for r in siblings], axis=0)
        whole = sum((term_frequencies(r.passage.indexed_text) for r in siblings), term_frequencies(""))
        assert hit.item.best == pytest.approx(max(cosines), abs=1e-5)
        assert hit.item.first == pytest.approx(cosines[0], abs=1e-5)
        assert hit.item.centroid == pytest.approx(float(mean @ asked.vector) / np.linalg.norm(mean), abs=1e-5)
        assert hit.item.best_words == pytest.approx(max(scores[hit.ref.item_id, n][1] for n in range(len(siblings))))
        expected = bm25(whole, whole.total(), weights, merged.average_item_length)
        assert hit.item.words == pytest.approx(expected, abs=1e-9)


FILTERS = {
    "file_type": (Filters(file_type="openapi"), lambda n, path: n % 3 == 1),
    "service": (Filters(service="svc-a"), lambda n, path: n % 3 == 0),
    "domain": (Filters(domain="pay"), lambda n, path: n % 2 == 0),
    "both": (Filters(domain="pay", file_type="java"), lambda n, path: n % 2 == 0 and n % 3 == 2),
    "signer": (Filters(signer="eve"), lambda n, path: n % 4 == 0),
    "key": (Filters(signer=EVE.key_id), lambda n, path: n % 4 == 0),
    "since": (Filters(since=SIGNED + timedelta(days=35)), lambda n, path: n >= 35),
    "type": (Filters(item_type=ItemType.DOCUMENT), lambda n, path: True),
    "items": (Filters(item_type=ItemType.SCRIPT), lambda n, path: False),
    "namespace": (Filters(namespace="src"), lambda n, path: path.startswith("src/")),
    "category": (Filters(category="ops"), lambda n, path: False),
    "tags": (Filters(tags=("x",)), lambda n, path: False),
    "a file": (Filters(path="docs/file_01.md"), lambda n, path: n == 1),
    "a folder": (Filters(path="src/main"), lambda n, path: path.startswith("src/main/")),
    "a folder, with its slash": (Filters(path="src/"), lambda n, path: path.startswith("src/")),
    "part of a name": (Filters(path="src/ma"), lambda n, path: False),
    "a star crosses slashes": (Filters(path="s*_0?.md"), lambda n, path: path.startswith("src/main/file_0")),
    "no other sign is special": (Filters(path="docs/file%.md"), lambda n, path: False),
    "nor the one in LIKE": (Filters(path="docs/file!_01.md"), lambda n, path: False),
}


@pytest.mark.parametrize("name", FILTERS)
async def test_filters_narrow_both_legs_and_the_list(
    store: RegistryVectorStore, held: dict[str, list[EmbeddingRecord]], name: str
) -> None:
    filters, matches = FILTERS[name]
    wanted = {path for n, path in enumerate(held) if matches(n, path)}
    assert [one.ref.item_id for one in await store.list(filters)] == sorted(wanted)
    statistics = await store.statistics(query_terms("canary queue"))
    found = await store.search(query("canary queue", statistics, filters=filters, depth=3))
    assert {hit.ref.item_id for hit in found.items} <= wanted
    assert len(found.items) >= min(3, sum(len(held[path]) for path in wanted))
    everything = await store.search(query("canary queue", statistics, filters=filters, depth=2000))
    assert {hit.ref.item_id for hit in everything.items} == wanted
    assert everything.plan == ("filtered exact" if wanted else "exact")


@pytest.mark.parametrize(
    "filter",
    [
        {"colour": "red"},
        {"path": 3},
        {"file_type": [1]},
        {"service": ["a"]},
        {"tags": "x"},
        {"since": "soon"},
        [],
        "path",
        None,
    ],
)
def test_a_filter_is_never_ignored(filled: str, filter: object) -> None:
    with psycopg.connect(filled, autocommit=True) as connection:
        for call in (
            "select * from public.list_items(%s, 'acme-web')",
            "select * from public.search_hybrid(null, '{x}', '{1}', 1, filter => %s, collection => 'acme-web')",
        ):
            with pytest.raises(UnknownFilter), translate_errors():
                connection.execute(call, [Jsonb(filter)])


async def test_words_alone_and_vectors_alone(filled: str, store: RegistryVectorStore) -> None:
    with psycopg.connect(filled, autocommit=True) as connection:
        call = (
            "select item_id, bm25, cosine from public.search_hybrid("
            "null, '{canari}', '{2}', 5, depth => 4, collection => 'acme-web')"
        )
        found = connection.execute(call).fetchall()
        assert len(found) == 4
        assert all(words > 0 and cosine == 0 for _, words, cosine in found)
        for wrong in ("'{a,b}', '{1}', 5", "'{a}', '{-1}', 5", "'{a}', '{1}', 0", "'{a}', '{1}', 5, depth => 2001"):
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(f"select * from public.search_hybrid(null, {wrong}, collection => 'acme-web')")  # type: ignore[call-overload]
            assert refused.value.sqlstate == "KW013"
    hits = (await store.search(query("", CollectionStatistics(), seed=50, depth=5))).items
    assert len(hits) == 5
    assert max(hits, key=lambda hit: hit.cosine).cosine == pytest.approx(1, abs=1e-6)
    assert np.allclose(unit_vector(50), query("", CollectionStatistics(), seed=50).vector)


async def test_slips_find_words_of_this_workspace(store: RegistryVectorStore) -> None:
    told = await store.similar_terms(["canarri", "databsa", "rolback", "xylophone", "a"])
    assert [told[slip][:1] for slip in ("canarri", "databsa", "rolback")] == [("canari",), ("databas",), ("rollback",)]
    assert told["xylophone"] == ()


async def test_an_unknown_workspace_is_empty(filled: str) -> None:
    store = RegistryVectorStore(Connections(filled), "nothing-here")
    assert await store.statistics(["canari"]) == CollectionStatistics()
    assert (await store.search(query("canary", CollectionStatistics(1, 1, {"canari": 1})))).items == ()
    assert await store.list(Filters()) == []
    assert await store.similar_terms(["canarri"]) == {"canarri": ()}
    assert (await store.status()).items == 0
    await store.close()
