"""Results of `benchmarks.trees` → a table of Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COLUMNS = (
    "tree", "files", "left out", "MB", "passages", "parse s", "MB/s", "warnings", "embedded passages", "of files",
    "index s", "index MB",
)  # fmt: skip
KEYS = (
    "files", "left_out", "mb", "passages", "parse_s", "mb_per_s", "warnings", "embedded_passages", "embedded_files",
    "index_s", "index_mb",
)  # fmt: skip


def table(results: Mapping[str, Any]) -> list[str]:
    """Return the results as Markdown: a line for each tree, and what the columns mean."""
    lines = [
        "",
        "Every file of each tree was parsed and split; each passage was compared with its lines, read again from the",
        "file, and each line that is not blank was looked for in the passages. `parse s` is one core's time.",
        f"Embedded was a sample of at most {results['sample_passages']:,} passages, chosen by the paths' SHA-256;",
        "`index s` is `kiwi workspace index` whole, with an empty cache. Left out: empty, no text, or over 8 MiB;",
        "what an index run leaves out by pattern (`node_modules`) is not counted at all.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "| --- " * len(COLUMNS) + "|",
        *map(_row, results["trees"]),
    ]
    return [*lines, "", *(f"- {tree['tree']}: {_about(tree)}" for tree in results["trees"])]


def _row(tree: Mapping[str, Any]) -> str:
    if "not_fetched" in tree:
        return f"| {tree['tree']} | " + " | ".join("–" for _ in KEYS) + " |"
    figures = tree | {"warnings": sum(tree["warnings"].values())}
    return f"| {tree['tree']} | " + " | ".join(f"{figures[key]:,}" for key in KEYS) + " |"


def _about(tree: Mapping[str, Any]) -> str:
    if "not_fetched" in tree:
        return f"{tree['source']}; not fetched: {tree['not_fetched']}"
    types = ", ".join(f"{count:,} {name}" for name, count in sorted(tree["file_types"].items()))
    codes = ", ".join(f"{count:,} {code}" for code, count in sorted(tree["warnings"].items())) or "none"
    slowest = tree["slowest"]
    return (
        f"{tree['source']} ({tree['version']}); {types}; warnings: {codes}; "
        f"slowest file {slowest['s']:g} s for {slowest['mb']:g} MB"
    )
