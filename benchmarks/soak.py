"""`make soak`: the long runs, one after the other → a table here and in SOAK.md; meant to stay under an hour.

Run: ``python -m benchmarks.soak [name …]``. A step is pytest with larger numbers, as tests/examples.py describes them,
or a script of this folder that prints rows. The exit code is 1 if a step failed.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from benchmarks.timing import timed

HERE = Path(__file__).parent
ROOT = HERE.parent
_WORKERS = ("-n", "4", "--dist", "worksteal")


class Outcome(NamedTuple):
    """What was tried: how often, what failed (empty where nothing did), the seconds, and figures."""

    name: str
    tried: object
    failed: str
    seconds: float
    notes: str


def _files_with(text: str, *folders: str) -> list[str]:
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("test_*.py")))
    return [str(path.relative_to(ROOT)) for path in paths if text in path.read_text()]


@dataclass(frozen=True)
class Tests:
    """Tests, selected by pytest's arguments, with numbers from the environment."""

    arguments: Sequence[str]
    environment: Mapping[str, str]

    def run(self, name: str) -> list[Outcome]:
        """Run them."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            command = [sys.executable, "-m", "pytest", *_WORKERS, f"--junitxml={report}", *self.arguments]
            environment = {**os.environ, **self.environment}
            seconds, done = timed(
                lambda: subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False)
            )
            if not report.is_file():
                return [Outcome(name, 0, f"exit code {done.returncode}", seconds, "")]
            cases = list(ElementTree.parse(report).iter("testcase"))
        failed = [str(case.get("name")) for case in cases if {"failure", "error"} & {child.tag for child in case}]
        skipped = sum(case.find("skipped") is not None for case in cases)
        notes = ", ".join(f"{key} {value}" for key, value in self.environment.items())
        notes += f"; {skipped} skipped" if skipped else ""
        return [Outcome(name, len(cases) - skipped, "; ".join(failed), seconds, notes)]


@dataclass(frozen=True)
class Script:
    """A script of this folder, which prints rows with ``name``, ``tried``, ``failed``, ``seconds`` and figures."""

    module: str
    arguments: Sequence[str] = ()

    def run(self, name: str) -> list[Outcome]:
        """Run it."""
        command = [sys.executable, "-m", f"benchmarks.{self.module}", *self.arguments]
        seconds, done = timed(lambda: subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False))
        if done.returncode:
            return [Outcome(name, 0, f"exit code {done.returncode}", seconds, "")]
        return [_outcome(row) for row in json.loads(done.stdout)]


def _outcome(row: dict[str, Any]) -> Outcome:
    known = [row.pop(field) for field in ("name", "tried", "failed", "seconds")]
    return Outcome(*known, ", ".join(f"{key} {json.dumps(value)}" for key, value in row.items()))


def steps() -> Mapping[str, Tests | Script]:
    """Return what runs, by name, in order."""
    sized = _files_with("tests.examples import", "tests")
    hypothesis = _files_with("from hypothesis import", "tests/unit", "tests/sql")
    kills = ["tests/interfaces/test_kill.py", "tests/interfaces/test_workspace_kill.py", "tests/sql/test_chaos.py"]
    full = _files_with("tests.disks import", "tests")
    return {
        "kill -9": Tests(kills, {"KIWI_KILLS": "50"}),
        "kill -9 of writers": Tests(["tests/unit", "-k", "kill_9"], {"KIWI_KILLS": "50"}),
        "full and read-only disks": Tests(full, {"KIWI_SIZES": "full"}),
        "large inputs": Tests(sized, {"KIWI_SIZES": "full"}),
        "properties": Tests(["tests/properties", "tests/sql/test_canonical.py"], {"KIWI_EXAMPLES": "100"}),
        "properties of units": Tests(hypothesis, {"KIWI_EXAMPLES": "1"}),
        "MCP start": Tests(["tests/interfaces/test_mcp_start.py"], {"KIWI_EXAMPLES": "20"}),
        "races": Tests(["tests/sql/test_revoke_race.py", "tests/sql/test_lock_order.py"], {"KIWI_RACES": "1000"}),
        "servers": Script("soak_servers"),
        "registry": Script("registry_load"),
        "hostile searches": Script("hostile_queries"),
    }


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes as a Markdown table."""
    rows = []
    for one in outcomes:
        cells = one.name, one.tried, one.failed[:200] or "–", f"{one.seconds:.0f}", one.notes[:160]
        rows.append("| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(["| what | tried | failed | s | |", "| --- | --- | --- | --- | --- |", *rows])


def _processor_seconds() -> float:
    """Return the processor time of all processes that ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the steps, print the table, and write it if all of them ran."""
    chosen = {name: step for name, step in steps().items() if not sys.argv[1:] or name in sys.argv[1:]}
    outcomes: list[Outcome] = []
    begun = time.monotonic()
    for name, step in chosen.items():
        print(f"{name} …", file=sys.stderr, flush=True)
        outcomes += step.run(name)
    shown = table(outcomes)
    print(shown)
    if not sys.argv[1:]:
        machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
        head = f"Made by `make soak` at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC on {machine} in "
        head += f"{(time.monotonic() - begun) / 60:.0f} minutes, {_processor_seconds() / 60:.0f} of a processor."
        (HERE / "SOAK.md").write_text(f"# Soak\n\n{head}\n\n{shown}\n")
    sys.exit(any(one.failed for one in outcomes))


if __name__ == "__main__":
    main()
