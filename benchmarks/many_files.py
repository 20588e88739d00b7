"""The memory that an index run over many small files takes: documents of a workspace, and signed items.

Run: ``python -m benchmarks.many_files [fewer] [more]``. Prints one JSON object. Vectors are made from digests of the
texts, so that a run takes minutes and the memory is that of the pipeline. Each run is in a process of its own, after a
first one over a few files that fills pools and imports what is needed; ``bytes_per_file`` is by what the highest
memory of the larger run exceeds that of the smaller one, for each file more. Above 50,000 passages a run also builds
Chroma's index, whose memory is another: the default stays below.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.place import Place
from benchmarks.timing import timed
from kiwi_rag.embedding import EmbeddingProvider, Fingerprint
from kiwi_rag.ingest.sync import Callbacks, sync
from kiwi_rag.model import Vector
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.sources.source import SyncReport
from kiwi_rag.usecases.add import update_index

FEWER, MORE = 5_000, 49_000
WARM_UP = 200
"""Files of the first run."""
_ITEM = """---
title: Buoy {number}
description: How often buoy {number} blinks.
version: "1.0.0"
category: acme
author: ada
---

Buoy {number} blinks every {seconds} seconds off mark {mark}.
"""
_DOCUMENT = "# Buoy {number}\n\nBuoy {number} blinks every {seconds} seconds off mark {mark}.\n"


class Digested(EmbeddingProvider):
    """Vectors that are made from the digests of texts: they mean nothing, and take almost no time."""

    batch_size = 64

    @property
    def fingerprint(self) -> Fingerprint:
        """One of its own."""
        return Fingerprint("digested", "0" * 64, 384, "none", 256)

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return a unit vector a text."""
        digests = b"".join(hashlib.shake_128(text.encode()).digest(384) for text in texts)
        rows = np.frombuffer(digests, np.uint8).reshape(-1, 384).astype(np.float32) - 127.5
        return list(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def write_files(root: Path, text: str, numbers: range) -> None:
    """Write small files below a folder, a hundred in each of its own."""
    for number in numbers:
        path = root / f"{number // 100}/{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(number=number, seconds=number % 9 + 1, mark=number * 7919 % 10_007))


async def index_documents(place: Place, numbers: range) -> SyncReport:
    """Index documents of a workspace in this process."""
    write_files(place.project / "docs", _DOCUMENT, numbers)
    async with Services.open(os.environ, place.project, place.project) as app, Workspace(app) as workspace:
        app.__dict__["embed"] = Digested()
        return await sync(workspace.source, workspace.tier, await workspace.writer())


async def index_items(place: Place, numbers: range) -> SyncReport:
    """Sign items in processes of their own, and index them in this one."""
    write_files(place.project / ".ai/knowledge", _ITEM, numbers)
    place.run("sign", ".ai")
    async with Services.open(os.environ, place.project, place.project) as app:
        app.__dict__["embed"] = Digested()
        return await update_index(app, "project", Callbacks(), 1, rebuild=False)


KINDS: Mapping[str, Callable[[Place, range], Any]] = {"documents": index_documents, "items": index_items}


def measure(kind: str, files: int) -> dict[str, Any]:
    """Return the memory of this process in MB before a run over so many files and at its highest, and its seconds."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        place = Place.below(Path(folder))
        os.environ.update(place.env)
        asyncio.run(KINDS[kind](place, range(WARM_UP)))
        Path("/proc/self/clear_refs").write_text("5")  # the highest memory is measured from here on
        before = _megabytes("VmRSS")
        seconds, report = timed(lambda: asyncio.run(KINDS[kind](place, range(WARM_UP, WARM_UP + files))))
        if len(report.indexed) != files or report.failed:
            raise SystemExit(f"{len(report.indexed)} of {files} {kind} were indexed")
    peak = _megabytes("VmHWM")
    return {"kind": kind, "files": files, "before_mb": before, "peak_mb": peak, "seconds": round(seconds, 1)}


def _megabytes(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6, 1)


def rows(fewer: int = FEWER, more: int = MORE) -> Iterator[dict[str, Any]]:
    """Yield what was measured of each kind and number of files, the larger runs with the bytes for each file more."""
    for kind, sizes in {"documents": (fewer, more), "items": (fewer // 5, 2 * fewer)}.items():
        small, large = (_in_a_process(kind, size) for size in sizes)
        more_bytes = (large["peak_mb"] - small["peak_mb"]) * 1e6 / (large["files"] - small["files"])
        yield small
        yield large | {"bytes_per_file": round(more_bytes)}


def _in_a_process(kind: str, files: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.many_files", kind, str(files)]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def main() -> None:
    """Measure everything, or one kind and number of files."""
    match sys.argv[1:]:
        case [("documents" | "items") as kind, files]:
            found: object = measure(kind, int(files))
        case sizes:
            found = {"rows": list(rows(*map(int, sizes)))}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
