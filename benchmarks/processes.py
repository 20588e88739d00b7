"""Whole processes, from the shell's side: bare Python, ``kiwi --help`` and ``kiwi search`` over the example items.

Run: ``python -m benchmarks.processes``. Prints one JSON object; seconds. The four take turns, so that a busy machine
slows each alike. A cold search asks what was never asked before, so that the model has to be loaded for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.place import KIWI, Place
from benchmarks.timing import spread, timed
from tests.shared import ROOT

REPEATS = 15


def measure() -> dict[str, Any]:
    """Return seconds by command, and the cold search as a multiple of bare Python."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        place = Place.below(Path(folder))
        place.copy_in(ROOT / "examples/acme/.ai")
        place.run("sign", ".ai")
        place.run("index")
        options: dict[str, Any] = {"env": place.env, "cwd": place.project, "check": True, "capture_output": True}
        times: dict[str, list[float]] = {}
        for turn in range(REPEATS + 1):
            commands = {
                "python -c pass": [sys.executable, "-c", "pass"],
                "kiwi --help": [*KIWI, "--help"],
                "kiwi search, cold": [*KIWI, "search", f"undo the deploy of service {turn}"],
                "kiwi search, query seen before": [*KIWI, "search", "undo the deploy of service 0"],
            }
            for name, command in commands.items():
                taken, _ = timed(lambda c=command: subprocess.run(c, **options))
                times.setdefault(name, []).append(taken)
    kept = {name: taken[1:] for name, taken in times.items()}  # the first of each filled the page cache
    pairs = zip(kept["kiwi search, cold"], kept["python -c pass"], strict=True)
    return {
        "seconds": {name: spread(taken) for name, taken in kept.items()},
        "cold_to_bare": spread([cold / bare for cold, bare in pairs], 1),
    }


if __name__ == "__main__":
    json.dump(measure(), sys.stdout, indent=1)
    sys.stdout.write("\n")
