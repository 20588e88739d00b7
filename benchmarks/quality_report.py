"""Results of `benchmarks.quality` → tables of Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kiwi_rag.evaluation.runs import MAIN

PEERS = ("hybrid_with_weights_as_shipped", "sql_bm25_first_queries", "bm25s")


def tables(results: Mapping[str, Any]) -> list[str]:
    """Return the results of `benchmarks.quality` as Markdown; what was skipped says why."""
    lines = []
    for name, found in results.items():
        if not isinstance(found, Mapping):
            continue  # how long the script took
        if "skipped" in found:
            lines += ["", f"### {name}", "", f"Skipped: {found['skipped']}."]
            continue
        about = f"{found['queries']} queries, {found['tiers']['project']['items']} items; weights {found['weights']}"
        lines += ["", f"### {name}", "", f"{about}. In brackets: 95% intervals over queries.", ""]
        lines += ["| method | nDCG@10 | recall@10 | hit@3 | MRR@10 | p50 ms | p95 ms |", "| --- " * 7 + "|"]
        lines += [_table_row(method, row) for method, row in found["rows"].items()]
        peers = {title: found[title] for title in PEERS if title in found}
        lines += [f"| {title.replace('_', ' ')} | {_figure(figure)} | | | | | |" for title, figure in peers.items()]
        lines += ["", "| ratio of nDCG@10 | measured |", "| --- | --- |"]
        lines += [f"| {ratio_name} | {_figure(figure)} |" for ratio_name, figure in found["ratios"].items()]
    return lines


def _table_row(method: str, row: Mapping[str, Any]) -> str:
    others = " | ".join(f"{row[name]['mean']:.3f}" for name in ("recall@10", "hit@3", "mrr@10"))
    return f"| {method} | {_figure(row[MAIN])} | {others} | {row['ms']['p50']:.1f} | {row['ms']['p95']:.1f} |"


def _figure(figure: Mapping[str, float]) -> str:
    return f"{figure['mean']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]"
