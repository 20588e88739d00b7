"""`make bench`: everything that is measured, side by side in one run → benchmarks/RESULTS.md and results.json.

Each script runs in a process of its own and prints JSON; one that fails is named in the results and stops no other.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import library_quality, quality_report, trees_report
from benchmarks.ratios import table
from benchmarks.timing import timed

HERE = Path(__file__).parent
ROOT = HERE.parent
SCRIPTS: Mapping[str, tuple[str, ...]] = {
    "processes": (),
    "local_search": (),
    "encode": (),
    "index_throughput": (),
    "workspace": (),
    "federated": (),
    "agents": (),
    "web": (),
    "registry_search": (),
    "words": ("10000",),
    "quality": ("acme", "corpus", "fitz-gov", "fitz-gov-untitled"),
    "library": (),
    "library_quality": (),
    "memory": (),
    "publish": ("300",),
    "sql_signature": (),
    "gate": (),
    "trees": ("1500",),
    "secrets": (),
}
"""Scripts beside this one, in the order in which they run, with their arguments; RESULTS.md says how long each took."""

MILLION = ("million", "million_local")
"""What `make bench-1m` measures, in files of its own."""


def script(name: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    """Run a script; return what it printed, or how it failed, and the seconds that it took."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    taken, done = timed(lambda: subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False))
    seconds = round(taken, 1)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {"failed": f"exit code {done.returncode}: {last}", "script_seconds": seconds}
    return {**json.loads(done.stdout), "script_seconds": seconds}


def measure(names: list[str]) -> dict[str, Any]:
    """Return the results of the named scripts, all when there are none, and of the last `make bench-1m`."""
    results: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load": os.getloadavg()[0],
    }
    for name in names or SCRIPTS:
        print(f"{name} …", file=sys.stderr, flush=True)
        results[name] = script(name, SCRIPTS[name])
    for name in MILLION:
        if (file := HERE / f"{name}.json").is_file():
            results[name] = json.loads(file.read_text())
    return results


def markdown(results: Mapping[str, Any]) -> str:
    """Return the results as Markdown: the table of ratios, then every script's figures."""
    lines = [
        "# Results",
        "",
        f"Made by `make bench` at {results['at']} on {results['machine']}; load before the run {results['load']:.2f}.",
        "What a ratio compares was measured side by side in one run, in turns; shown are the median of its repeats",
        "and, as the noise, their least and greatest; – where nothing was repeated.",
        "",
        *table(results),
    ]
    for name in (*SCRIPTS, "million_local"):
        if name in results:
            lines += ["", f"## {name}", *_figures(name, results[name])]
    seconds = {name: found["script_seconds"] for name, found in results.items() if "script_seconds" in _mapping(found)}
    lines += ["", f"## Seconds ({sum(seconds.values()) / 60:.1f} minutes)", "", "| script | s |", "| --- | --- |"]
    lines += [f"| {name} | {taken:g} |" for name, taken in seconds.items()]
    return "\n".join(lines) + "\n"


def _figures(name: str, found: Mapping[str, Any]) -> list[str]:
    if name == "quality" and "failed" not in found:
        return quality_report.tables(found)
    if name == "library_quality" and "failed" not in found:
        return library_quality.table(found)
    if name == "trees" and "failed" not in found:
        return trees_report.table(found)
    return ["", "```json", json.dumps(found, indent=1), "```"]


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def main() -> None:
    """Measure and write both files; with names of scripts, only print the table of what those measure."""
    names = sys.argv[1:]
    results = measure(names)
    if names:
        print("\n".join(table(results)))
        return
    kept = {name: value for name, value in results.items() if name not in MILLION}
    (HERE / "results.json").write_text(json.dumps(kept, indent=1) + "\n")
    (HERE / "RESULTS.md").write_text(markdown(results))
    print((HERE / "RESULTS.md").read_text())


if __name__ == "__main__":
    main()
