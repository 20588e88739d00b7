"""Tuning ranks as the product's own fusion does, whatever the scores and the weights."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.weights import Captured, Trials
from kiwi_rag.collection import RANKS
from kiwi_rag.evaluation import judgements
from kiwi_rag.evaluation.judgements import JudgedQuery
from kiwi_rag.model import Candidate, FusionWeights, ItemScores, Passage
from kiwi_rag.model.refs import ITEM_TYPES, ItemRef
from kiwi_rag.search.ranking import RankedHit
from tests.examples import examples

pytestmark = pytest.mark.slow

SHARES = st.floats(0, 1).map(lambda x: round(x, 3))
COSINES = st.floats(-1, 1).map(lambda x: round(x, 2))  # coarse, so that ties happen
WORDS = st.just(0.0) | st.floats(0, 20).map(lambda x: round(x, 1))


@st.composite
def founds(draw: st.DrawFn) -> tuple[RankedHit, ...]:
    made = {}
    for _ in range(draw(st.integers(0, 40))):
        name, tier = f"acme/n{draw(st.integers(0, 25))}", draw(st.sampled_from(sorted(RANKS)))
        kind = draw(st.sampled_from(ITEM_TYPES))
        item = ItemScores(draw(COSINES), draw(COSINES), draw(COSINES), draw(WORDS), draw(WORDS))
        content = draw(st.sampled_from([name, "the same"])) if draw(st.booleans()) else f"{kind}{name}{tier}"
        candidate = Candidate(
            ItemRef(kind, name, "1.0.0"), "d", content, Passage(0, "text", "", (), 1, 1), item.best, item.best_words,
            {}, "k", datetime(2026, 1, 1, tzinfo=UTC), item,
        )  # fmt: skip
        made[kind, name, tier] = RankedHit(tier, RANKS[tier], "exact", candidate)
    return tuple(made.values())


@examples(75)
@given(
    found=founds(),
    grades=st.dictionaries(st.sampled_from([f"directive:acme/n{n}" for n in range(26)]), st.integers(0, 3), max_size=8),
    shares=st.tuples(SHARES, SHARES, SHARES, SHARES),
    rarest=st.just(0.0) | st.floats(0.1, 15),
)
def test_a_trial_is_the_products_own_fusion(
    found: tuple[RankedHit, ...], grades: dict[str, int], shares: tuple[float, float, float, float], rarest: float
) -> None:
    alpha, first, centroid, whole = shares
    weights = FusionWeights(alpha, first, min(centroid, 1 - first), whole)
    captured = Captured(JudgedQuery("q", "x", "", grades), found, 100, rarest)
    expected = judgements.ndcg(captured.ranked(weights), grades)
    assert Trials(captured).ndcg(weights) == pytest.approx(expected, abs=1e-12)
