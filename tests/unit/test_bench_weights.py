"""Choosing the fusion's weights on judged queries: candidates captured from real tiers, and what is reported."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import weights as tuning
from benchmarks.weights import is_even
from kiwi_rag.errors import StoreError, UsageError
from kiwi_rag.evaluation.judgements import Dataset, load
from kiwi_rag.model import FusionWeights
from kiwi_rag.search.ranking import default_weights, read_weights
from tests.search_tiers import EMBED, Shelf, note
from tests.unit.test_evaluation import SUBJECTS, dataset, filled, judged


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    made = await filled(tmp_path)
    yield made
    await made.close()


async def captured_of(shelf: Shelf, queries: Dataset) -> list[Any]:
    return await tuning.capture(queries, list(shelf.tiers.values()), EMBED, 10.0)


async def test_what_is_captured_ranks_as_a_search_does(shelf: Shelf) -> None:
    await shelf.put("registry", "acme/vault", note("Another vault", "It shadows nothing and is shadowed."))
    for capture in await captured_of(shelf, dataset(*(judged(s) for s in SUBJECTS))):
        for weights in (default_weights(), FusionWeights(0.3, 0.2, 0.1, 0.9)):
            reply = await shelf.search(capture.query.query, weights=weights)
            assert capture.ranked(weights)[:10] == [f"{h.ref.item_type}:{h.ref.item_id}" for h in reply.hits]


async def test_tuning_finds_the_leg_that_is_right_and_reports_on_the_other_half(shelf: Shelf, tmp_path: Path) -> None:
    """Judged by words: each query names one subject, and what is judged is what its words find first."""
    queries = dataset(*(replace(judged(s), id=f"{s}{n}", query=f"{s} number {n}") for s in SUBJECTS for n in range(4)))
    captured = await captured_of(shelf, queries)
    by_words = FusionWeights(0.0)
    wanted = [replace(c, query=replace(c.query, relevant={c.ranked(by_words)[0]: 1})) for c in captured]
    found = tuning.tune(wanted, FusionWeights(1.0))
    assert found.chosen_on >= found.chosen_before
    assert found.chosen_on == pytest.approx(1.0)
    odd = [c for c in wanted if not is_even(c.query)]
    assert len(found.columns["tuned"]) == len(odd)
    assert found.figures()["bm25"].mean == 1.0
    path = tmp_path / "weights.json"
    tuning.write(found, queries, path)
    assert read_weights(str(path)) == found.weights
    assert json.loads(path.read_text())["obtained"]["reported_on"]["queries"] == len(odd)


async def test_tuning_needs_queries_on_both_sides(shelf: Shelf) -> None:
    captured = await captured_of(shelf, dataset(judged("vault")))
    with pytest.raises(UsageError, match="too few"):
        tuning.tune(captured, FusionWeights(0.5))


async def test_tuning_does_not_go_on_without_a_tier(shelf: Shelf) -> None:
    class Broken:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def statistics(self, terms: Any) -> Any:
            raise StoreError("the shelf fell")

    shelf.wrap("registry", Broken(shelf.tier("registry").store))
    with pytest.raises(StoreError, match="the shelf fell"):
        await captured_of(shelf, dataset(judged("vault")))


def test_a_query_is_always_in_the_same_half(tmp_path: Path) -> None:
    lines = [json.dumps({"query": f"number {n}", "relevant": {"knowledge:a": 1}}) for n in range(40)]
    path = tmp_path / "queries.jsonl"
    path.write_text("\n".join(lines))
    queries = load(path).queries
    even = {q.query for q in queries if is_even(q)}
    assert even == {q.query for q in queries if int(hashlib.sha256(q.query.encode()).hexdigest()[-1], 16) % 2 == 0}
    assert 10 < len(even) < 30
