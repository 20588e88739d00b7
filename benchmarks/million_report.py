"""Results of `make bench-1m` → Markdown, JSON and a plot beside this file.

Run ``python -m benchmarks.million_report [--remark TEXT …]`` to write the last results anew, and to add to them what
only whoever made the run can know. A remark is lost with the next run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_HEAD = """# From ten thousand to a million passages

Made by `make bench-1m` at {at} on {machine}; load before the run {load_before}; {minutes} minutes so far.
Generated, clustered vectors of 384 dimensions with texts after Zipf's law; loaded by COPY as the owner of the database,
without the check of each signature (`million_data.py` says how). Times in ms of single calls, one at a time; recall@10
against numpy's exact scan in the same run.
"""


def write(results: dict[str, Any]) -> None:
    """Write all three files."""
    (HERE / "million.json").write_text(json.dumps(results, indent=1) + "\n")
    (HERE / "MILLION.md").write_text("\n".join(_lines(results)) + "\n")
    _plot(results)


def _lines(results: dict[str, Any]) -> list[str]:
    lines = [_HEAD.format(**{"minutes": 0, **results}), *_ratios(results), *_remarks(results.get("remarks", ()))]
    for passages, stage in results["stages"].items():
        lines += ["", f"## {int(passages):,} passages", "", *_stage(stage)]
    lines += ["", "## Seconds", "", "| step | s |", "| --- | --- |"]
    lines += [f"| {name} | {seconds:g} |" for name, seconds in results["seconds"].items()]
    return lines


def _remarks(remarks: Sequence[str]) -> list[str]:
    if not remarks:
        return []
    head = "Written by hand after the run (`python -m benchmarks.million_report --remark …`), not measured by it:"
    return ["", "## Remarks of whoever made this run", "", head, "", *(f"- {one}" for one in remarks)]


def _ratios(results: dict[str, Any]) -> list[str]:
    lines = ["## Ratios", "", "| passages | ratio | wanted | measured | recall@10 |", "| --- | --- | --- | --- | --- |"]
    for passages, stage in results["stages"].items():
        for method in ("ivfflat", "ivfflat, tuned at a tenth", "hnsw"):
            if method not in stage:
                continue
            size, got = f"{int(passages):,}", stage[method]["search_embeddings"]["all"]
            scan = got["p95"] / stage["numpy_scan"]["p50"]
            hand = stage[method]["beside_by_hand"]["ratio_p95"]
            lines += [
                f"| {size} | {method}: p95 ÷ numpy scan (p50) | ≤ 0.3 at 1M | {scan:.2f} | {got['recall']:.3f} |",
                f"| {size} | {method}: p95 ÷ by hand | ≤ 1.15 | {hand:.2f} | |",
            ]
    return lines


def _stage(stage: dict[str, Any]) -> list[str]:
    lines = [
        "| what | p50 | p95 | min | max | recall@10 | rows | plan |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    if "numpy_scan" in stage:
        lines.append(_row("numpy, exact, float32", stage["numpy_scan"]))
    lines += [_row(f"exact in SQL, {name}", row) for name, row in stage.get("exact", {}).items()]
    notes = []
    for method in ("ivfflat, tuned at a tenth", "ivfflat", "hnsw"):
        if method in stage:
            for what in ("search_embeddings", "leg_of_100"):
                lines += [_row(f"{method}: {what}, {name}", row) for name, row in stage[method][what].items()]
            notes.append(f"- {method}: {json.dumps(stage[method]['tuned'])}")
    words = {name: row for name, row in stage.get("words", {}).items() if isinstance(row, dict)}
    lines += [_row(name, row) for name, row in words.items()]
    if "disk" in stage:
        notes.append(f"- on disk: {json.dumps(stage['disk'])}")
    return [*lines, "", *notes]


def _row(name: str, row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"| {name} | failed after {row['after']}: {row['failed']} | | | | | | |"
    plans = ", ".join(f"{plan} ×{count}" for plan, count in row.get("plans", {}).items())
    times = " | ".join(f"{row[key]:g}" for key in ("p50", "p95", "min", "max"))
    return f"| {name} | {times} | {row.get('recall', '')} | {row.get('fewest_rows', '')} | {plans} |"


def _plot(results: dict[str, Any]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    lines: dict[str, list[tuple[int, float]]] = {}
    for passages, stage in results["stages"].items():
        found = {
            "numpy, exact": stage.get("numpy_scan"),
            "exact in SQL": stage.get("exact", {}).get("all"),
            "ivfflat": stage.get("ivfflat", {}).get("search_embeddings", {}).get("all"),
            "hnsw": stage.get("hnsw", {}).get("search_embeddings", {}).get("all"),
            "1% filter": stage.get("ivfflat", {}).get("search_embeddings", {}).get("1%"),
        }
        for name, row in found.items():
            if row:
                lines.setdefault(name, []).append((int(passages), row["p50"]))
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="passages",
        ylabel="ms a query (p50)",
        title="Vector search, one query at a time",
    )
    axes.grid(visible=True, alpha=0.3)
    if lines:
        axes.legend()
    figure.tight_layout()
    figure.savefig(HERE / "million.png", dpi=110)
    pyplot.close(figure)


def main() -> None:
    """Add remarks to the last results, and write them anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--remark", action="append", default=[], help="a sentence to keep with these results")
    results = json.loads((HERE / "million.json").read_text())
    if remarks := [*results.get("remarks", ()), *parser.parse_args().remark]:
        results["remarks"] = remarks
    write(results)


if __name__ == "__main__":
    main()
