"""The index of real trees of documents: how soon words find them, and what the whole run takes beside raw encoding.

Run: ``python -m benchmarks.documents [--rounds 5] [--whole 1] FOLDER...``. Prints one JSON object: for each folder the
median and the spread of its rounds; those after the first ``--whole`` are interrupted when words find the files, and
are of ``words_seconds`` alone. A round copies the folder, runs ``kiwi workspace index`` with an empty cache in a
process of its own, and looks into its catalog meanwhile, from the start of the command on: when 95% of the files that
are indexed in the end are found by words. Then the very same passages are encoded alone, all at once and without a
cache, in a process whose model is loaded; and an unchanged tree is indexed again, beside walking it. It is no part of
``make bench``, for the trees are its arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.place import KIWI, Place
from benchmarks.timing import spread, timed
from benchmarks.workspace import SETTLED_SECONDS
from kiwi_rag.ingest.sync import sync
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.sources.workspace.source import walk
from kiwi_rag.stores.local.catalog import read_passage
from kiwi_rag.stores.local.ownership import CATALOG_NAME
from kiwi_rag.wordpieces import embedded_text

COVERED = 0.95
"""The share of files that has to be found by words."""
STEP_SECONDS = 0.05


def measure(folder: Path, rounds: int, whole: int) -> dict[str, Any]:
    """Return the figures of one tree."""
    turns = [_turn(folder) for _ in range(min(rounds, whole))]
    first = turns[0]
    words = [turn["words"] for turn in turns]
    words += [_words_alone(folder, COVERED * first["files"]) for _ in range(rounds - len(turns))]
    return {
        "tree": folder.name,
        **{name: first[name] for name in ("files", "passages")},
        "words_seconds": spread(words, 2),
        "words_seconds_per_8000_passages": spread([seconds * 8_000 / first["passages"] for seconds in words], 2),
        "whole_seconds": spread([turn["whole"] for turn in turns], 1),
        "encode_seconds": spread([turn["encode"] for turn in turns], 1),
        "encode_passages_per_second": spread([turn["texts"] / turn["encode"] for turn in turns], 1),
        "ratio": spread([turn["encode"] / turn["whole"] for turn in turns]),
        "peak_mb": spread([turn["peak_mb"] for turn in turns], 0),
        "unchanged_seconds": spread([turn["unchanged"] for turn in turns]),
        "walk_seconds": spread([turn["walk"] for turn in turns]),
    }


def _turn(folder: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as scratch:
        place = Place.below(Path(scratch))
        shutil.copytree(folder, place.project, dirs_exist_ok=True)
        command = _command(place)
        return {**command, **asyncio.run(_beside(place))}


def _words_alone(folder: Path, files: float) -> float:
    """Return the seconds after which words find so many files; the command is interrupted then."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as scratch:
        place = Place.below(Path(scratch))
        shutil.copytree(folder, place.project, dirs_exist_ok=True)
        started = time.perf_counter()
        with _started(place) as process:
            while _count(place.project, "items") < files and process.poll() is None:
                time.sleep(STEP_SECONDS)
            seconds = time.perf_counter() - started
            process.send_signal(signal.SIGINT)
        return seconds


def _started(place: Place) -> subprocess.Popen[bytes]:
    command = [*KIWI, "-q", "workspace", "index", "."]
    return subprocess.Popen(command, env=dict(place.env), cwd=place.project, stdout=subprocess.DEVNULL)


def _command(place: Place) -> dict[str, Any]:
    """Run the command; return its seconds, its peak of memory, and when words found `COVERED` of the files."""
    started = time.perf_counter()
    process = _started(place)
    seen: list[tuple[float, int]] = []
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        seen.append((time.perf_counter() - started, _count(place.project, "items")))
        if pid:
            break
        time.sleep(STEP_SECONDS)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):  # 3: some files were refused
        raise SystemExit(f"kiwi workspace index: exit code {process.returncode}")
    whole, files = seen[-1]
    words = next(seconds for seconds, count in seen if count >= COVERED * files)
    passages = _count(place.project, "passages")
    if _count(place.project, "vectors") != passages:
        raise SystemExit("not everything was embedded")
    return {"words": words, "whole": whole, "files": files, "passages": passages, "peak_mb": usage.ru_maxrss / 1024}


def _count(project: Path, table: str) -> int:
    """Return how many rows a table of the catalog has; 0 while there is no catalog."""
    for catalog in (project / ".ai/vectors").glob(f"*/documents/{CATALOG_NAME}"):
        with closing(sqlite3.connect(f"file:{catalog}?mode=ro", uri=True, timeout=10)) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    return 0


async def _beside(place: Place) -> dict[str, Any]:
    """Return the seconds of encoding the same passages, of a run over the unchanged tree, and of walking it."""
    await asyncio.sleep(SETTLED_SECONDS)
    async with Services.open(place.env, place.project, place.project) as app, Workspace(app) as workspace:
        writer: Any = await workspace.writer()
        texts = _texts(place.project)
        await writer.embed.inner.documents(["warm"])
        started = time.perf_counter()
        await writer.embed.inner.documents(texts)
        encode = time.perf_counter() - started
        await sync(workspace.source, workspace.tier, writer)  # reads once more what was written a moment ago
        started = time.perf_counter()
        report = await sync(workspace.source, workspace.tier, writer)
        unchanged = time.perf_counter() - started
        if report.indexed or report.embedded:
            raise SystemExit(f"not unchanged: {report.indexed[:3]}, {report.embedded} embedded")
        walked = timed(lambda: list(walk(place.project)))[0]
        return {"texts": len(texts), "encode": encode, "unchanged": unchanged, "walk": walked}


def _texts(project: Path) -> Sequence[str]:
    """Return what was embedded, each text once."""
    (catalog,) = (project / ".ai/vectors").glob(f"*/documents/{CATALOG_NAME}")
    with closing(sqlite3.connect(catalog)) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM passages")
        return list(dict.fromkeys(embedded_text(read_passage(row)) for row in rows))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--whole", type=int, default=1, help="how many of the rounds run to their end")
    parser.add_argument("folders", type=Path, nargs="+")
    given = parser.parse_args()
    print(json.dumps([measure(folder, given.rounds, given.whole) for folder in given.folders], indent=1))


if __name__ == "__main__":
    main()
