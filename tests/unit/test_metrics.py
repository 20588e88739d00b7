"""Ranking quality on examples small enough to compute by hand."""

from __future__ import annotations

import math
import random

import pytest
import pytrec_eval

from kiwi_rag.evaluation import judgements

GRADES = {"a": 2, "b": 1}


def test_a_perfect_ranking_scores_one() -> None:
    assert judgements.ndcg(["a", "b", "x"], GRADES) == 1.0


def test_ndcg_by_hand() -> None:
    gained = 1 / math.log2(3) + 2 / math.log2(5)  # b second, a fourth
    ideal = 2 / math.log2(2) + 1 / math.log2(3)
    assert judgements.ndcg(["x", "b", "y", "a"], GRADES) == pytest.approx(gained / ideal)


def test_ndcg_looks_at_the_first_k_only() -> None:
    assert judgements.ndcg(["x", "a"], {"a": 2}, k=1) == 0.0
    assert judgements.ndcg([f"x{n}" for n in range(10)] + ["a"], GRADES) == 0.0
    many = {str(n): 1 for n in range(20)}
    assert judgements.ndcg([str(n) for n in range(10)], many) == 1.0


@pytest.mark.parametrize("grades", [{}, {"a": 0}])
def test_nothing_to_find_scores_zero(grades: dict[str, int]) -> None:
    assert judgements.ndcg(["a"], grades) == 0.0
    assert judgements.hit(["a"], grades) == 0.0
    assert judgements.reciprocal_rank(["a"], grades) == 0.0


def test_hit_is_about_the_first_three() -> None:
    assert judgements.hit(["x", "y", "b"], GRADES) == 1.0
    assert judgements.hit(["x", "y", "z", "b"], GRADES) == 0.0
    assert judgements.hit([], GRADES) == 0.0


def test_reciprocal_rank_is_that_of_the_first() -> None:
    assert judgements.reciprocal_rank(["x", "b", "a"], GRADES) == 0.5
    assert judgements.reciprocal_rank(["x"], GRADES) == 0.0


def test_reciprocal_rank_looks_at_the_first_ten() -> None:
    assert judgements.reciprocal_rank([f"x{n}" for n in range(9)] + ["a"], GRADES) == 0.1
    assert judgements.reciprocal_rank([f"x{n}" for n in range(10)] + ["a"], GRADES) == 0.0


def test_recall_counts_relevant_items_whatever_their_grade() -> None:
    grades = {"a": 2, "b": 1, "c": 1, "judged and useless": 0}
    assert judgements.recall(["a", "judged and useless", "x"], grades, 3) == pytest.approx(1 / 3)
    assert judgements.recall(["x", "a", "b", "c"], grades, 3) == pytest.approx(2 / 3)
    assert judgements.recall(["a"], {"a": 0}) == 0.0


def test_a_score_names_what_it_measured() -> None:
    found = judgements.score(["x", "a"], {"a": 1}, 5)
    assert tuple(found) == ("ndcg@10", "recall@5", "hit@3", "mrr@10")
    assert found == {"ndcg@10": 1 / math.log2(3), "recall@5": 1.0, "hit@3": 1.0, "mrr@10": 0.5}


def test_metrics_are_those_of_trec_eval() -> None:
    """The reference implementation of the field, over random rankings and graded judgements."""
    chance = random.Random(4)
    judged: dict[str, dict[str, int]] = {}
    ranked: dict[str, list[str]] = {}
    for number in range(200):
        pool = [f"d{n}" for n in range(chance.randint(1, 40))]
        judged[f"q{number}"] = {
            ref: chance.choice([0, 0, 1, 1, 2, 3]) for ref in chance.sample(pool, len(pool) // 2 + 1)
        }
        ranked[f"q{number}"] = chance.sample(pool, chance.randint(1, len(pool)))[:10]
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10", "recall.5", "recip_rank", "success.3"})
    scored = {name: {ref: float(-rank) for rank, ref in enumerate(refs)} for name, refs in ranked.items()}
    theirs = evaluator.evaluate(scored)
    assert len(theirs) == 200
    for name, refs in ranked.items():
        ours = judgements.score(refs, judged[name], 5)
        assert ours["ndcg@10"] == pytest.approx(theirs[name]["ndcg_cut_10"])
        assert ours["recall@5"] == pytest.approx(theirs[name]["recall_5"])
        assert ours["hit@3"] == theirs[name]["success_3"]
        assert ours["mrr@10"] == pytest.approx(theirs[name]["recip_rank"])
