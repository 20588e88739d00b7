"""Ranking quality on examples small enough to compute by hand."""

from __future__ import annotations

import math

import pytest

from kiwi_rag.search import metrics

GRADES = {"a": 2, "b": 1}


def test_a_perfect_ranking_scores_one() -> None:
    assert metrics.ndcg(["a", "b", "x"], GRADES) == 1.0


def test_ndcg_by_hand() -> None:
    gained = 1 / math.log2(3) + 2 / math.log2(5)  # b second, a fourth
    ideal = 2 / math.log2(2) + 1 / math.log2(3)
    assert metrics.ndcg(["x", "b", "y", "a"], GRADES) == pytest.approx(gained / ideal)


def test_ndcg_looks_at_the_first_k_only() -> None:
    assert metrics.ndcg(["x", "a"], {"a": 2}, k=1) == 0.0
    assert metrics.ndcg([f"x{n}" for n in range(10)] + ["a"], GRADES) == 0.0
    many = {str(n): 1 for n in range(20)}
    assert metrics.ndcg([str(n) for n in range(10)], many) == 1.0


@pytest.mark.parametrize("grades", [{}, {"a": 0}])
def test_nothing_to_find_scores_zero(grades: dict[str, int]) -> None:
    assert metrics.ndcg(["a"], grades) == 0.0
    assert metrics.hit(["a"], grades) == 0.0
    assert metrics.reciprocal_rank(["a"], grades) == 0.0


def test_hit_is_about_the_first_three() -> None:
    assert metrics.hit(["x", "y", "b"], GRADES) == 1.0
    assert metrics.hit(["x", "y", "z", "b"], GRADES) == 0.0
    assert metrics.hit([], GRADES) == 0.0


def test_reciprocal_rank_is_that_of_the_first() -> None:
    assert metrics.reciprocal_rank(["x", "b", "a"], GRADES) == 0.5
    assert metrics.reciprocal_rank(["x"], GRADES) == 0.0


def test_mean() -> None:
    assert metrics.mean([1.0, 0.0, 0.5]) == 0.5
    assert metrics.mean([]) == 0.0
