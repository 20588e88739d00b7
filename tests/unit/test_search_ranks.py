"""Searches over a store whose scores are only an order: ranks are fused, in tiers and in a workspace."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.errors import StoreCorrupt
from kiwi_rag.model import Candidates, CollectionStatistics, ItemScores, SearchQuery
from kiwi_rag.search.verify import check_candidates
from kiwi_rag.stores.qdrant import QdrantVectorStore
from tests.conformance.documents import document, records_of
from tests.conformance.items import query
from tests.qdrant_server import LocalQdrant
from tests.workspaces import Yard


@dataclasses.dataclass
class QdrantYard(Yard):
    """A workspace whose documents are in a Qdrant of this process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shared = QdrantVectorStore(LocalQdrant(), "kiwi100-yard")

    @property
    def tier(self) -> Any:
        return dataclasses.replace(super().tier, store=self.shared)


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[QdrantYard]:
    workspace = QdrantYard(tmp_path / "yard")
    workspace.write("docs/tides.md", "# Tides\n\nThe tide turns an hour later every day.\n")
    workspace.write("docs/cranes.md", "# Cranes\n\nCrane four lifts twelve tons.\n")
    workspace.write("docs/berths.md", "# Berths\n\nBerth nine is free at noon.\n")
    await workspace.index()
    yield workspace
    await workspace.shared.close()
    await workspace.store.close()


async def test_a_workspace_is_ranked_by_reciprocal_ranks(yard: QdrantYard) -> None:
    reply = await yard.search("crane twelve tons")
    assert reply.complete
    assert reply.hits[0].path == "docs/cranes.md"
    assert {hit.parts["fusion"] for hit in reply.hits} == {"rrf"}
    best = reply.hits[0].parts
    assert (best["words"], best["alpha"]) == (1.0, 0.5)
    assert sorted((hit.parts["vectors"] for hit in reply.hits), reverse=True)[0] == 1.0
    assert all(hit.parts["words"] == 0 for hit in reply.hits if hit.parts["bm25"] == 0)
    ranked = [alone(hit.parts) for hit in reply.hits]
    assert [hit.score for hit in reply.hits] == pytest.approx(ranked)


def alone(parts: dict[str, Any]) -> float:
    return (parts["vectors"] + parts["words"]) / 2 + sum(parts[name] for name in ("kind", "path", "headings", "page"))


async def test_alpha_weighs_the_ranks_where_it_is_given(yard: QdrantYard) -> None:
    reply = await yard.searcher.search(SearchQuery("berth", alpha=0.0))
    assert (reply.hits[0].path, reply.hits[0].parts["alpha"]) == ("docs/berths.md", 0.0)
    assert reply.hits[0].score >= 1.0


async def test_scores_that_are_an_order_have_no_highest_and_are_numbers_all_the_same() -> None:
    store = QdrantVectorStore(LocalQdrant(), "shared")
    await store.put([records_of(document("acme/one", ["zebra"]))])
    asked = query("zebra", CollectionStatistics(1000, 1000, {"zebra": 1000}, 1000))  # in every passage: worth nothing
    found = await store.search(asked)
    assert check_candidates(found, asked, comparable=False) == found
    with pytest.raises(StoreCorrupt):
        check_candidates(found, asked)
    for wrong in (float("nan"), float("inf"), -1.0):
        item = ItemScores(0.5, 0.5, 0.5, wrong, wrong)
        (candidate,) = found.items
        forged = Candidates((candidate._replace(bm25=wrong, item=item),), "exact")
        with pytest.raises(StoreCorrupt):
            check_candidates(forged, asked, comparable=False)
    await store.close()
