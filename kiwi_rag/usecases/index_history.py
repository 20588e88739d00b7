"""The history of index runs over this user's workspaces and libraries: one record a run, in ``~/.ai/runs.jsonl``."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kiwi_rag.signing.statement import format_time
from kiwi_rag.sources.source import SyncReport
from kiwi_rag.storage.json_lines import RotatingLines

HISTORY_BYTES = 1 << 18
"""Size of the history from which it is moved aside: about 800 runs."""


@contextmanager
def recorded_run(user_dir: Path, title: str, *, named: int, rebuild: bool) -> Iterator[SyncReport]:
    """Yield the report that a run over an index with this title fills, and append a record of it when the block ends.

    The record has the counts of the report, ``outcome`` (``done``, ``stopped`` or ``failed``), and ``named``, which is
    how many files were named, 0 for all.
    """
    about = {"at": format_time(datetime.now(UTC)), "root": title, "rebuild": rebuild, "named": named}
    report, started, outcome = SyncReport(), time.monotonic(), "failed"
    try:
        yield report
        outcome = "done"
    except (asyncio.CancelledError, KeyboardInterrupt):
        outcome = "stopped"
        raise
    finally:
        counts = {name: value if isinstance(value, int) else len(value) for name, value in report.as_dict().items()}
        record = {**about, "outcome": outcome, "seconds": time.monotonic() - started, **counts}
        with suppress(OSError):  # a full disk: what was indexed is stored all the same
            _history(user_dir).append(f"{json.dumps(record)}\n".encode())


def read_history(user_dir: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records of runs, the newest first; half a line from a full disk is left out."""
    for line in (line for data in _history(user_dir).contents() for line in reversed(data.splitlines())):
        with suppress(ValueError):
            yield json.loads(line)


def _history(user_dir: Path) -> RotatingLines:
    return RotatingLines(user_dir / "runs.jsonl", HISTORY_BYTES)
