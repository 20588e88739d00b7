"""`make bench`: everything that is measured, side by side in one run → benchmarks/RESULTS.md and results.json."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
REPEATS = 9


def seconds(command: list[str], env: dict[str, str], cwd: Path) -> dict[str, float]:
    """Return median, min and max wall time of a command over `REPEATS` runs, in seconds."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        subprocess.run(command, env=env, cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - begun)
    return {"median": statistics.median(times), "min": min(times), "max": max(times)}


def processes() -> dict[str, dict[str, float]]:
    """Time whole processes: bare Python, `kiwi --help`, and a cold `kiwi search` over the example items."""
    kiwi = [sys.executable, "-m", "kiwi_rag.cli"]
    with tempfile.TemporaryDirectory() as folder:
        home, project = Path(folder, "home"), Path(folder, "project")
        home.mkdir()
        project.mkdir()
        env = {**os.environ, "HOME": str(home), "KIWI_KEY_PASSPHRASE": "bench"}
        env.setdefault("KIWI_CACHE_DIR", str(ROOT / ".cache/kiwi"))
        bare = seconds([sys.executable, "-c", "pass"], env, project)
        help_ = seconds([*kiwi, "--help"], env, project)
        for call in (["init"], ["keys", "new"]):
            subprocess.run([*kiwi, "-q", *call], env=env, cwd=project, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cp", "-R", f"{ROOT}/examples/acme/.ai/.", ".ai/"], cwd=project, check=True)
        for call in (["sign", ".ai"], ["index"]):
            subprocess.run([*kiwi, "-q", *call], env=env, cwd=project, check=True, stdout=subprocess.DEVNULL)
        # A query that is new each time: the embedding cache must not answer it.
        cold = [
            seconds([*kiwi, "search", f"take back release {n}"], env, project)["median"] for n in range(3)
        ]  # fmt: skip
        first = []
        for n in range(REPEATS):
            begun = time.perf_counter()
            subprocess.run(
                [*kiwi, "search", f"undo the deploy of service {n}"], env=env, cwd=project, check=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            first.append(time.perf_counter() - begun)
    return {
        "python -c pass": bare,
        "kiwi --help": help_,
        "kiwi search, query seen before": {"median": statistics.median(cold), "min": min(cold), "max": max(cold)},
        "kiwi search, cold": {"median": statistics.median(first), "min": min(first), "max": max(first)},
    }


def script(name: str) -> Any:
    """Run one of the scripts beside this one in a process of its own, and return what it printed."""
    done = subprocess.run([sys.executable, HERE / name], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return json.loads(done.stdout)


def main() -> None:
    """Measure and write both files."""
    results = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load": os.getloadavg()[0],
        "processes": processes(),
        "local_search": script("local_search.py"),
        "encode": script("encode.py"),
        "publish": script("publish.py"),
        "sql_signature": script("sql_signature.py"),
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (HERE / "RESULTS.md").write_text(table(results))
    print((HERE / "RESULTS.md").read_text())


def table(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# Results",
        "",
        f"Made by `make bench` at {results['at']} on {results['machine']}; load before the run {results['load']:.2f}.",
        f"Processes: median of {REPEATS} runs, with min and max as the noise.",
        "",
        "| process | median s | min | max |",
        "| --- | --- | --- | --- |",
    ]
    for name, row in results["processes"].items():
        lines.append(f"| `{name}` | {row['median']:.3f} | {row['min']:.3f} | {row['max']:.3f} |")
    for title in ("local_search", "encode", "sql_signature", "publish"):
        lines += ["", f"## {title}", "", "```json", json.dumps(results[title], indent=1), "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
