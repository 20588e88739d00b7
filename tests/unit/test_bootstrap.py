"""Intervals and differences, on data whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.bootstrap import difference, intervals, ratio
from tests.examples import size


def test_an_interval_holds_the_true_mean_as_often_as_it_says() -> None:
    """300 samples of 80 values of mean 0.3: about 95% of the intervals must hold it, and none may be too wide."""
    chance = np.random.default_rng(1)
    columns = {str(n): (chance.random(80) < 0.3).astype(float).tolist() for n in range(300)}
    found = intervals(columns, resamples=1_000)
    held = sum(i.low <= 0.3 <= i.high for i in found.values()) / len(found)
    assert 0.90 <= held <= 0.98
    width = float(np.median([i.high - i.low for i in found.values()]))
    assert width == pytest.approx(2 * 1.96 * math.sqrt(0.3 * 0.7 / 80), rel=0.1)


def test_an_interval_is_around_the_mean_and_the_same_every_time() -> None:
    values = [0.0, 1.0, 0.5, 0.25, 0.75, 1.0]
    found = intervals({"a": values, "b": values})
    assert found["a"] == found["b"] == intervals({"a": values})["a"]
    assert found["a"].mean == pytest.approx(sum(values) / len(values))
    assert found["a"].low < found["a"].mean < found["a"].high


def test_a_single_query_has_no_spread() -> None:
    assert intervals({"a": [0.4]})["a"].as_dict() == {"mean": 0.4, "low": 0.4, "high": 0.4}


def test_a_difference_is_paired() -> None:
    """Queries differ much, the methods by a tenth each time: unpaired, that would drown in the spread."""
    chance = np.random.default_rng(2)
    first = chance.random(50) * 0.9
    found = difference((first + 0.1).tolist(), first.tolist())
    assert found.mean == pytest.approx(0.1)
    assert (found.low, found.high) == (pytest.approx(0.1), pytest.approx(0.1))
    assert found.p == 0.0


def test_no_difference_is_no_news() -> None:
    values = [0.1, 0.9, 0.5]
    assert difference(values, values).as_dict() == {"mean": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}


def test_a_p_value_is_small_as_rarely_as_it_should_be() -> None:
    chance = np.random.default_rng(3)
    small = 0
    trials = size(400)
    for _ in range(trials):
        first, second = chance.random(40), chance.random(40)
        small += difference(first.tolist(), second.tolist(), resamples=400).p < 0.05
    assert small / trials <= 0.11


def test_a_ratio_of_means() -> None:
    found = ratio([0.2, 0.4, 0.6], [0.1, 0.2, 0.3])
    assert found.mean == pytest.approx(2.0)
    assert (found.low, found.high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert math.isnan(ratio([0.0], [0.0]).mean)
