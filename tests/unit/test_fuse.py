"""Fusion, grouping and precedence, on numbers small enough to compute by hand."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kiwi_rag.model import Candidate, Passage
from kiwi_rag.refs import ItemRef, ItemType
from kiwi_rag.search.fuse import DEFAULT_ALPHA, Found, Recency, Scored, fuse
from kiwi_rag.search.rank import Group, groups, order
from kiwi_rag.tiers import RANKS

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def found(item_id: str, cosine: float, bm25: float, tier: str = "project", **changes: Any) -> Found:
    ordinal, age = changes.pop("ordinal", 0), changes.pop("age", 0)
    kind = changes.pop("item_type", ItemType.DIRECTIVE)
    passage = Passage(ordinal, "text", "", (), 1, 1)
    candidate = Candidate(
        ItemRef(kind, item_id, "1.0.0"), "d", "c", passage, cosine, bm25, {}, "k", NOW - timedelta(days=age)
    )
    assert not changes, changes
    return Found(tier, RANKS[tier], "exact", candidate)


def ids(scored: list[Scored]) -> list[str]:
    return [s.found.candidate.ref.item_id for s in scored]


def test_scores_by_hand() -> None:
    a, b, c = found("a", 0.6, 0.0), found("b", 0.2, 4.0), found("c", -1.0, 1.0)
    scored = {s.found.candidate.ref.item_id: s for s in fuse([a, b, c], 0.75, 100)}
    # cosines over [-1, 0.6] and BM25 over [0, 4]
    assert scored["a"].score == pytest.approx(0.75 * 1.0 + 0.25 * 0.0)
    assert scored["b"].score == pytest.approx(0.75 * (1.2 / 1.6) + 0.25 * 1.0)
    assert scored["c"].score == pytest.approx(0.75 * 0.0 + 0.25 * 0.25)
    assert scored["b"].parts == {
        "cosine": 0.2, "bm25": 4.0, "vector_rank": 2, "lexical_rank": 1, "alpha": 0.75, "prior": 1.0, "plan": "exact",
    }  # fmt: skip
    assert scored["a"].parts["lexical_rank"] is None


def test_alpha_decides_between_the_legs() -> None:
    near, worded = found("near", 0.9, 0.1), found("worded", 0.1, 5.0)
    assert ids(fuse([near, worded], 1.0, 100)) == ["near", "worded"]
    assert ids(fuse([near, worded], 0.0, 100)) == ["worded", "near"]
    assert 0 < DEFAULT_ALPHA < 1


def test_no_words_found_leaves_the_vectors() -> None:
    scored = fuse([found("a", 0.5, 0.0), found("b", 0.4, 0.0)], 0.5, 100)
    assert [s.score for s in scored] == pytest.approx([0.5, 0.5 * 1.4 / 1.5])


def test_cosines_of_minus_one_divide_by_nothing() -> None:
    assert [s.score for s in fuse([found("a", -1.0, 0.0)], 0.5, 100)] == [0.0]
    assert fuse([], 0.5, 100) == []


def test_only_the_best_of_a_leg_over_all_tiers_count() -> None:
    many = [found(f"p{n}", 0.9 - n / 100, 0.0, "project") for n in range(3)]
    worse = [found(f"r{n}", 0.5 - n / 100, float(n), "registry") for n in range(3)]
    assert set(ids(fuse(many + worse, 0.5, 2))) == {"p0", "p1", "r2", "r1"}


def test_the_top_of_a_leg_is_taken_after_the_cut() -> None:
    """What the cut leaves out does not stretch the scale either."""
    scored = fuse([found("a", 0.5, 1.0), found("b", 0.4, 9.0), found("c", 0.3, 2.0)], 0.5, 1)
    assert set(ids(scored)) == {"a", "b"}
    assert scored[0].score == pytest.approx(0.5 * (1.4 / 1.5) + 0.5)


def test_the_order_of_arrival_does_not_matter() -> None:
    generator = random.Random(4)
    everything = [
        found(f"i{n % 9}", generator.choice([0.1, 0.2, 0.5]), generator.choice([0.0, 1.0, 2.0]), tier, ordinal=n)
        for n in range(40)
        for tier in ("project", "user", "registry")
    ]

    def answer(candidates: list[Found]) -> list[tuple[Any, ...]]:
        fused = fuse(candidates, 0.5, 15)
        ranked = sorted((order(g.winner), [(e.found.tier, e.score) for e in g.entries]) for g in groups(fused))
        return [*ranked, *((s.found.candidate.passage.ordinal, s.found.tier, s.score) for s in fused)]

    wanted = answer(everything)
    for _ in range(20):
        generator.shuffle(everything)
        assert answer(everything) == wanted


def test_equal_scores_are_ordered_by_type_id_and_tier() -> None:
    ties = [found("b", 0.5, 1.0), found("a", 0.5, 1.0, item_type=ItemType.SCRIPT), found("a", 0.5, 1.0, "user")]
    listed = [(s.found.candidate.ref.item_type.value, s.found.candidate.ref.item_id) for s in fuse(ties, 0.5, 10)]
    assert listed == [("directive", "a"), ("directive", "b"), ("script", "a")]


def test_recency_halves_with_every_half_life() -> None:
    prior = Recency(30, NOW)
    assert prior.factor(NOW) == 1.0
    assert prior.factor(NOW - timedelta(days=30)) == pytest.approx(0.5)
    assert prior.factor(NOW - timedelta(days=90)) == pytest.approx(0.125)
    assert prior.factor(NOW + timedelta(days=1)) == 1.0  # a clock ahead of ours earns nothing


def test_recency_is_a_prior_on_the_whole_score() -> None:
    old, new = found("old", 0.9, 2.0, age=60), found("new", 0.8, 2.0)
    assert ids(fuse([old, new], 0.5, 10)) == ["old", "new"]
    scored = fuse([old, new], 0.5, 10, Recency(30, NOW))
    assert ids(scored) == ["new", "old"]
    assert scored[1].score == pytest.approx(0.25 * (0.5 + 0.5))
    assert scored[1].parts["prior"] == pytest.approx(0.25)


def test_a_group_holds_one_entry_a_tier_its_best_passage() -> None:
    scored = fuse(
        [
            found("a", 0.9, 0.0, "registry"),
            found("a", 0.5, 0.0, "project", ordinal=1),
            found("a", 0.6, 0.0, "project", ordinal=2),
            found("a", 0.1, 0.0, "user"),
        ],
        1.0,
        10,
    )
    (group,) = groups(scored)
    assert [(e.found.tier, e.found.candidate.passage.ordinal) for e in group.entries] == [
        ("project", 2), ("user", 0), ("registry", 0),
    ]  # fmt: skip
    assert group.winner.found.tier == "project"
    assert [e.found.tier for e in group.without_winner().entries] == ["user", "registry"]
    assert Group(group.entries[2:]).without_winner().entries == ()


def test_ids_are_grouped_as_they_fold_and_types_stay_apart() -> None:
    scored = fuse(
        [
            found("acme/roll-out", 0.9, 0.0),
            found("acme/roll_out", 0.8, 0.0, "user"),
            found("acme/roll-out", 0.7, 0.0, item_type=ItemType.SCRIPT),
        ],
        1.0,
        10,
    )
    assert [len(g.entries) for g in groups(scored)] == [2, 1]
