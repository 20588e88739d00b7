"""`make soak`: the long runs, one after the other → a table here and in SOAK.md; meant to stay under an hour.

Run: ``python -m benchmarks.soak [name …]``. A step is pytest with larger numbers, as tests/examples.py describes them,
or a script of this folder whose JSON has its failures under ``wrong``. The exit code is 1 if a step failed.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from benchmarks.timing import timed

HERE = Path(__file__).parent
ROOT = HERE.parent
_WORKERS = ("-n", "4", "--dist", "worksteal")


class Outcome(NamedTuple):
    """What a step did: ``tried`` counts tests or attempts; ``notes`` are figures, or the first failures.

    ``cpu`` is the processor time of its processes, in seconds; it varies less with what else the machine does.
    """

    name: str
    tried: int
    failed: int
    seconds: float
    notes: str
    cpu: float = 0.0


def _files_with(text: str, *folders: str) -> list[str]:
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("test_*.py")))
    return [str(path.relative_to(ROOT)) for path in paths if text in path.read_text()]


@dataclass(frozen=True)
class Tests:
    """Tests, selected by pytest's arguments, with numbers from the environment."""

    arguments: Sequence[str]
    environment: Mapping[str, str]

    def run(self, name: str) -> Outcome:
        """Run them."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            command = [sys.executable, "-m", "pytest", *_WORKERS, f"--junitxml={report}", *self.arguments]
            environment = {**os.environ, **self.environment}
            seconds, done = timed(
                lambda: subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False)
            )
            if not report.is_file():
                return Outcome(name, 0, 1, seconds, f"pytest ended with exit code {done.returncode}")
            cases = list(ElementTree.parse(report).iter("testcase"))
        failed = [str(case.get("name")) for case in cases if {"failure", "error"} & {child.tag for child in case}]
        skipped = sum(case.find("skipped") is not None for case in cases)
        notes = ", ".join(f"{key} {value}" for key, value in self.environment.items())
        notes = f"{notes}; {skipped} skipped" if skipped else notes
        return Outcome(name, len(cases) - skipped, len(failed), seconds, "; ".join(failed[:3]) or notes)


@dataclass(frozen=True)
class Script:
    """A script of this folder; `count` is the key of its JSON that has the number of attempts."""

    module: str
    count: str
    arguments: Sequence[str] = ()

    def run(self, name: str) -> Outcome:
        """Run it."""
        command = [sys.executable, "-m", f"benchmarks.{self.module}", *self.arguments]
        seconds, done = timed(lambda: subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False))
        if done.returncode:
            return Outcome(name, 0, 1, seconds, f"exit code {done.returncode}")
        found = json.loads(done.stdout)
        wrong = found.pop("wrong")
        figures = ", ".join(f"{key} {json.dumps(value)}" for key, value in found.items() if key != self.count)
        return Outcome(name, found[self.count], len(wrong), seconds, "; ".join(wrong[:3]) or figures)


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
        "hostile queries": Script("hostile_queries", "queries"),
    }


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes as a Markdown table."""
    rows = []
    for one in outcomes:
        notes = one.notes.replace("|", "/")[:200]
        rows.append(f"| {one.name} | {one.tried:,} | {one.failed} | {one.seconds:.0f} | {one.cpu:.0f} | {notes} |")
    return "\n".join(["| step | tried | failed | s | CPU s | |", "| --- | --- | --- | --- | --- | --- |", *rows])


def _processor_seconds() -> float:
    """Return the processor time of all processes that ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the steps, print the table, and write it if all of them ran."""
    chosen = {name: step for name, step in steps().items() if not sys.argv[1:] or name in sys.argv[1:]}
    outcomes = []
    for name, step in chosen.items():
        print(f"{name} …", file=sys.stderr, flush=True)
        before = _processor_seconds()
        outcomes.append(step.run(name)._replace(cpu=_processor_seconds() - before))
    shown = table(outcomes)
    print(shown)
    if not sys.argv[1:]:
        minutes = sum(one.seconds for one in outcomes) / 60
        machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
        head = f"Made by `make soak` at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC on {machine}, in {minutes:.0f} minutes."
        (HERE / "SOAK.md").write_text(f"# Soak\n\n{head}\n\n{shown}\n")
    sys.exit(any(one.failed for one in outcomes))


if __name__ == "__main__":
    main()
