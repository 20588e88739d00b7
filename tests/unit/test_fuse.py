"""Fusion, grouping and precedence, on numbers small enough to compute by hand."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kiwi_rag.collection import RANKS
from kiwi_rag.lexical import max_term_score
from kiwi_rag.model import Candidate, CollectionStatistics, FusionWeights, ItemScores, Passage
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.search.ranking import (
    SATURATION,
    Fusion,
    RankedHit,
    Recency,
    apply_shadowing,
    default_weights,
    fuse,
    sort_key,
)

RAREST = 4.0
HALF = SATURATION * RAREST
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def found(item_id: str, cosine: float, bm25: float, tier: str = "project", **changes: Any) -> RankedHit:
    ordinal, age = changes.pop("ordinal", 0), changes.pop("age", 0)
    kind = changes.pop("item_type", ItemType.DIRECTIVE)
    item = changes.pop("item", None) or ItemScores(cosine, cosine, cosine, bm25, bm25)
    passage = Passage(ordinal, "text", "", (), 1, 1)
    candidate = Candidate(
        ItemRef(kind, item_id, "1.0.0"), "d", "c", passage, cosine, bm25, {}, "k", NOW - timedelta(days=age), item
    )
    assert not changes, changes
    return RankedHit(tier, RANKS[tier], "exact", candidate)


def fused(candidates: list[RankedHit], alpha: float = 0.5, depth: int = 100, **how: Any) -> list[RankedHit]:
    weights = how.pop("weights", FusionWeights(alpha))
    return fuse(candidates, depth, Fusion(weights, RAREST, **how))


def ids(scored: list[RankedHit]) -> list[str]:
    return [s.candidate.ref.item_id for s in scored]


def test_scores_by_hand() -> None:
    a, b, c = found("a", 0.6, 0.0), found("b", 0.2, HALF), found("c", -1.0, HALF / 3)
    scored = {s.candidate.ref.item_id: s for s in fused([a, b, c], 0.75)}
    assert scored["a"].score == pytest.approx(0.75 * 0.8)
    assert scored["b"].score == pytest.approx(0.75 * 0.6 + 0.25 * 0.5)
    assert scored["c"].score == pytest.approx(0.25 * 0.25)
    assert scored["a"].parts["lexical_rank"] is None
    parts = scored["b"].parts
    assert (parts["cosine"], parts["bm25"], parts["vector_rank"], parts["lexical_rank"]) == (0.2, HALF, 2, 1)
    assert (parts["vectors"], parts["words"]) == (pytest.approx(0.6), pytest.approx(0.5))
    assert (parts["alpha"], parts["fusion"], parts["prior"], parts["plan"]) == (0.75, "convex", 1.0, "exact")


def test_an_items_whole_counts_by_its_shares() -> None:
    item = ItemScores(best=0.8, first=0.4, centroid=0.2, best_words=HALF, words=HALF / 3)
    weights = FusionWeights(0.6, first=0.25, centroid=0.5, whole=0.75)
    (scored,) = fused([found("a", 0.1, 1.0, item=item)], weights=weights)
    cosine, bm25 = 0.25 * 0.8 + 0.25 * 0.4 + 0.5 * 0.2, 0.25 * HALF + 0.75 * HALF / 3
    assert scored.score == pytest.approx(0.6 * (cosine + 1) / 2 + 0.4 * bm25 / (bm25 + HALF))


def test_a_score_does_not_depend_on_what_else_was_found() -> None:
    one = found("a", 0.4, 3.0)
    alone = fused([one])[0].score
    crowd = [found(f"n{n}", 0.9, 90.0, "registry") for n in range(50)]
    assert {s.candidate.ref.item_id: s.score for s in fused([one, *crowd])}["a"] == alone


def test_scores_stay_within_one_whatever_bm25_says() -> None:
    assert fused([found("a", 1.0, 1e9)])[0].score <= 1.0
    assert fused([found("a", -1.0, 0.0)])[0].score == 0.0
    assert fused([]) == []


def test_a_rare_word_is_worth_more_in_a_larger_collection() -> None:
    small, large = (max_term_score(CollectionStatistics(n, n)) for n in (50, 5_000))
    assert 0 < small < large
    assert max_term_score(CollectionStatistics()) > 0  # nothing divides by nothing


def test_alpha_decides_between_the_legs() -> None:
    near, worded = found("near", 0.9, 0.1), found("worded", 0.1, 5.0)
    assert ids(fused([near, worded], 1.0)) == ["near", "worded"]
    assert ids(fused([near, worded], 0.0)) == ["worded", "near"]
    assert 0 < default_weights().alpha < 1


def test_only_the_best_of_a_leg_over_all_tiers_count() -> None:
    many = [found(f"p{n}", 0.9 - n / 100, 0.0, "project") for n in range(3)]
    worse = [found(f"r{n}", 0.5 - n / 100, float(n), "registry") for n in range(3)]
    assert set(ids(fused(many + worse, 0.5, 2))) == {"p0", "p1", "r2", "r1"}


def test_rrf_counts_ranks_alone() -> None:
    a, b, c = found("a", 0.9, 0.0), found("b", 0.8, 9.0), found("c", 0.1, 8.0)
    scored = {s.candidate.ref.item_id: s.score for s in fused([a, b, c], method="rrf")}
    assert scored["b"] == pytest.approx((61 / 62 + 61 / 61) / 2)
    assert scored["c"] == pytest.approx((61 / 63 + 61 / 62) / 2)
    assert scored["a"] == pytest.approx(61 / 61 / 2)  # no word of the query stands in it


def test_an_item_is_shown_by_the_passage_that_both_legs_like_best() -> None:
    passages = [found("a", 0.5, 1.0, ordinal=2), found("a", 0.5, 1.0, ordinal=1), found("a", 0.2, 1.5, ordinal=0)]
    (scored,) = fused(passages)
    assert scored.candidate.passage.ordinal == 1


def test_the_order_of_arrival_does_not_matter() -> None:
    generator = random.Random(4)
    everything = [
        found(f"i{n % 9}", generator.choice([0.1, 0.2, 0.5]), generator.choice([0.0, 1.0, 2.0]), tier, ordinal=n)
        for n in range(40)
        for tier in ("project", "user", "registry")
    ]

    def answer(candidates: list[RankedHit]) -> list[tuple[Any, ...]]:
        scored = fused(candidates, 0.5, 15)
        ranked = sorted(
            (sort_key(hit), [(h.tier, h.score) for h in (hit, *hit.shadowed)]) for hit in apply_shadowing(scored)
        )
        return [*ranked, *((s.candidate.passage.ordinal, s.tier, s.score) for s in scored)]

    wanted = answer(everything)
    for _ in range(20):
        generator.shuffle(everything)
        assert answer(everything) == wanted


def test_equal_scores_are_ordered_by_type_id_and_tier() -> None:
    ties = [found("b", 0.5, 1.0), found("a", 0.5, 1.0, item_type=ItemType.SCRIPT), found("a", 0.5, 1.0, "user")]
    listed = [(s.candidate.ref.item_type.value, s.candidate.ref.item_id) for s in fused(ties, 0.5, 10)]
    assert listed == [("directive", "a"), ("directive", "b"), ("script", "a")]


def test_recency_halves_with_every_half_life() -> None:
    prior = Recency(30, NOW)
    assert prior.factor(NOW) == 1.0
    assert prior.factor(NOW - timedelta(days=30)) == pytest.approx(0.5)
    assert prior.factor(NOW - timedelta(days=90)) == pytest.approx(0.125)
    assert prior.factor(NOW + timedelta(days=1)) == 1.0  # a clock ahead of ours earns nothing


def test_recency_is_a_prior_on_the_whole_score() -> None:
    old, new = found("old", 0.9, 2.0, age=60), found("new", 0.8, 2.0)
    assert ids(fused([old, new], 0.5, 10)) == ["old", "new"]
    scored = fused([old, new], 0.5, 10, recency=Recency(30, NOW))
    assert ids(scored) == ["new", "old"]
    assert scored[1].score == pytest.approx(0.25 * (0.5 * 0.95 + 0.5 * 2 / (2 + HALF)))
    assert scored[1].parts["prior"] == pytest.approx(0.25)


def test_a_hit_shadows_one_hit_a_tier_each_its_best_passage() -> None:
    scored = fused(
        [
            found("a", 0.9, 0.0, "registry"),
            found("a", 0.5, 0.0, "project", ordinal=1),
            found("a", 0.6, 0.0, "project", ordinal=2),
            found("a", 0.1, 0.0, "user"),
        ],
        1.0,
        10,
    )
    (hit,) = apply_shadowing(scored)
    assert [(h.tier, h.candidate.passage.ordinal) for h in (hit, *hit.shadowed)] == [
        ("project", 2), ("user", 0), ("registry", 0),
    ]  # fmt: skip
    assert hit.tier == "project"
    assert [h.tier for h in hit.shadowed] == ["user", "registry"]
    assert [h.shadowed for h in hit.shadowed] == [(), ()]
    (alone,) = apply_shadowing(hit.shadowed[1:])
    assert (alone.tier, alone.shadowed) == ("registry", ())


def test_ids_are_grouped_as_they_fold_and_types_stay_apart() -> None:
    scored = fused(
        [
            found("acme/roll-out", 0.9, 0.0),
            found("acme/roll_out", 0.8, 0.0, "user"),
            found("acme/roll-out", 0.7, 0.0, item_type=ItemType.SCRIPT),
        ],
        1.0,
        10,
    )
    assert [1 + len(hit.shadowed) for hit in apply_shadowing(scored)] == [2, 1]


def test_tiers_whose_scores_cannot_be_compared_are_ranked_one_by_one() -> None:
    """Each tier's scale is its own: the first of each counts the same, and the depth cuts each tier by itself."""
    small = [found("a", 0.2, 0.1), found("b", 0.1, 0.2)]
    large = [found(f"n{n}", 0.9 - n / 100, 90.0 - n, "registry") for n in range(5)]
    scored = fused([*small, *large], depth=3, method="rrf", comparable=False)
    scores = {s.candidate.ref.item_id: s.score for s in scored}
    assert scores.keys() == {"a", "b", "n0", "n1", "n2"}
    assert scores["n0"] == pytest.approx(1)
    assert scores["a"] == scores["b"] == pytest.approx((1 + 61 / 62) / 2)
    assert ids(fused([*reversed(large), *small], depth=3, method="rrf", comparable=False)) == ids(scored)
    together = fused([*small, *large], depth=3, method="rrf")
    assert {s.candidate.ref.item_id for s in together} == {"n0", "n1", "n2"}


def test_a_leg_that_did_not_find_an_item_gives_it_no_rank() -> None:
    words_only, both = found("a", -1.0, 9.0), found("b", 0.3, 5.0)
    scored = {s.candidate.ref.item_id: s for s in fused([words_only, both], method="rrf", comparable=False)}
    assert (scored["a"].parts["vector_rank"], scored["a"].parts["lexical_rank"]) == (None, 1)
    assert scored["a"].score == pytest.approx(1 / 2)
    assert scored["b"].score == pytest.approx((1 + 61 / 62) / 2)
