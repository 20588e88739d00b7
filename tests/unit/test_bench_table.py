"""The table of ratios: what is met, what is missed and why, and what nobody measured."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.ratios import RATIOS, Ratio, table
from benchmarks.timing import p95, spread

INTERVAL = {"mean": 0.5, "low": 0.4, "high": 0.6}

FULL: dict[str, Any] = {
    "at": "2026-01-02T03:04:05+00:00",
    "machine": "2 cores",
    "load": 0.5,
    "processes": {"cold_to_bare": spread([36.0, 35.0, 41.0])},
    "local_search": {
        "ratios": {
            name: spread([0.5, 0.4, 0.7])
            for name in ("to_chroma_10", "to_chroma_100", "filtered", "hybrid", "filtered_recall")
        }
    },
    "encode": {"ratio": spread([1.9])},
    "index_throughput": {"ratio": spread([0.9, 0.92, 0.97]), "unchanged": {"encoded": 0}},
    "workspace": {
        "throughput": {"ratio": spread([0.96, 0.97]), "command": {"ratio": spread([0.95, 0.96])}},
        "unchanged": {"encoded": 0},
        "changed": {"ratio": spread([1.2])},
        "judged": {"test": {"hit@3": 0.95}},
    },
    "memory": {"search_p95_ms": 40.0, "context_p95_ms": 50.0, "add_p95_ms": 20.0},
    "library": {"command": {"words_seconds": spread([5.0]), "ratio": spread([0.96])}},
    "library_quality": {
        split: {"hybrid": {"mrr": 0.81, "hit@5": 0.93}, "hybrid / better leg": 1.1}
        for split in ("tune and report", "third")
    },
    "agents": {"through_service_ms": {f"{name} to bare": spread([4.0]) for name in ("search", "workspace search")}},
    "federated": {"federated_p95_to_slowest_alone": spread([1.0])},
    "registry_search": {"ratio_p95": spread([1.05, 1.0, 1.2])},
    "quality": {
        "script_seconds": 60.0,
        "corpus": {"skipped": "there is none"},
        "fitz-gov": {
            "queries": 3,
            "tiers": {"project": {"items": 7}},
            "weights": {"alpha": 0.6},
            "rows": {
                "hybrid": {
                    **dict.fromkeys(("ndcg@10", "recall@10", "hit@3", "mrr@10"), INTERVAL),
                    "ms": {"p50": 1.0, "p95": 2.0},
                }
            },
            "bm25s": INTERVAL,
            "ratios": {
                "hybrid / better leg (vectors)": {"mean": 1.03, "low": 1.01, "high": 1.05},
                "SQL BM25 / bm25s": {"mean": 1.0, "low": 0.99, "high": 1.01},
            },
        },
    },
    "secrets": {
        "detection": {"tried on": {"found": 0.95}, "kept apart": {"found": 0.9}},
        "false_alarms": {"rate": 0.002},
    },
    "million": {
        "stages": {
            "1000000": {
                "numpy_scan": {"p50": 100.0},
                "ivfflat": {"search_embeddings": {"all": {"p95": 12.0, "recall": 0.98}}},
            }
        }
    },
}


def fixed(sense: Any, wanted: float, values: list[float], reason: str = "") -> str:
    ratio = Ratio("a ÷ b", sense, wanted, lambda _: spread(values), reason)
    return table({}, [ratio])[-1]


@pytest.mark.parametrize(
    ("sense", "wanted", "measured", "met"),
    [
        ("≤", 0.8, 0.8, True),
        ("≤", 0.8, 0.801, False),
        ("≥", 1.5, 1.5, True),
        ("≥", 1.5, 1.499, False),
        ("=", 0.0, 0.0, True),
        ("=", 1.0, 0.999, False),
    ],
)
def test_a_ratio_is_met_or_missed_at_its_bound(sense: str, wanted: float, measured: float, met: bool) -> None:
    assert fixed(sense, wanted, [measured]).endswith("| met |" if met else "| **missed** |")


def test_the_median_decides_and_the_noise_stands_beside_it() -> None:
    assert fixed("≤", 1.2, [1.0, 1.1, 9.0]) == "| a ÷ b | ≤ 1.2 | 1.1 | 1 – 9 | met |"


def test_a_reason_is_given_only_for_what_is_missed() -> None:
    assert "two cores" not in fixed("≤", 2, [1.0], "two cores")
    assert fixed("≤", 2, [3.0], "two cores").endswith("| **missed**: two cores |")


def test_every_ratio_of_the_design_is_read_from_the_scripts_results() -> None:
    lines = table(FULL)
    assert len(lines) == 2 + len(RATIOS)
    assert not [line for line in lines if "not measured" in line]
    assert [line.split("|")[1].strip() for line in lines if "missed" in line] == [
        "recall@10 under filters of 10%, 1% and 0.01% (least)",
        "index throughput ÷ raw encode of the same passages",
    ]


def test_what_failed_or_was_not_run_says_so() -> None:
    results = {"encode": {"failed": "exit code 1: no model"}}
    assert all("not measured in this run" in line for line in table(results)[2:])


def test_a_fast_answer_with_too_little_recall_is_missed() -> None:
    ratio = next(ratio for ratio in RATIOS if ratio.recall)
    found = {"p95": 12.0, "recall": 0.979}
    stage = {"numpy_scan": {"p50": 100.0}, "ivfflat": {"search_embeddings": {"all": found}}}
    line = table({"million": {"stages": {"1000000": stage}}}, [ratio])[-1]
    assert line.endswith("| 0.12 | – | **missed**, recall@10 0.979 |")


def test_noise_is_told_only_where_something_was_repeated() -> None:
    assert fixed("≤", 1.2, [1.0]) == "| a ÷ b | ≤ 1.2 | 1 | – | met |"


def test_p95_never_lies_above_what_was_measured() -> None:
    assert p95([1.0, 2.0, 3.0]) <= 3.0
    assert p95([4.0]) == 4.0


def test_the_results_page_holds_the_tables_and_every_scripts_figures() -> None:
    from benchmarks.run import markdown

    page = markdown(FULL)
    assert "load before the run 0.50" in page
    assert "| unchanged re-index: passages encoded | = 0 | 0 | – | met |" in page
    assert "met, recall@10 0.980 |" in page
    assert "| hybrid | 0.500 [0.400, 0.600] | 0.500 | 0.500 | 0.500 | 1.0 | 2.0 |" in page
    assert "Skipped: there is none." in page
    assert "## Seconds (1.0 minutes)" in page
    assert page.count("```json") == 11


def test_a_script_that_failed_is_on_the_results_page() -> None:
    from benchmarks.run import markdown

    page = markdown({**FULL, "quality": {"failed": "exit code 1: no model", "script_seconds": 1.0}})
    assert "exit code 1: no model" in page
