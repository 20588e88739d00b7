"""A workspace's index: throughput beside raw encoding, a run over unchanged files, one changed file of thousands.

Run: ``python -m benchmarks.workspace [documents] [rounds] [files]``. Prints one JSON object. Throughput is that of a
run with an empty cache in a process whose model is loaded, beside encoding the very same passages there and nothing
else; and that of the command whole, which starts and loads the model first. The other two are runs over `files` files,
one of which is long: unchanged, beside walking and a stat call a file; and with the long one rewritten, beside encoding
its new passages.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.index_throughput import note
from benchmarks.place import Place
from benchmarks.timing import spread, timed
from kiwi_rag.chunking import split_document
from kiwi_rag.ingest.sync import sync
from kiwi_rag.model import SearchQuery
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.sources.workspace.source import walk
from kiwi_rag.validation.admission import policy_of
from kiwi_rag.validation.document_gate import DocumentFile, inspect_document
from kiwi_rag.wordpieces import embedded_text
from tests.shared import ROOT

JUDGED = ROOT / "tests/data/workspace"
LONG = "docs/long.md"
SETTLED_SECONDS = 2.5
"""A file that changed a moment ago is read once more; so the clock is given time before a run that is measured."""


def throughput(documents: int, rounds: int) -> dict[str, Any]:
    """Return passages a second of both sides, and the ratios of each round; the first round is not counted."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        place = Place.below(Path(folder))
        (place.project / "docs").mkdir()
        for number in range(documents):
            (place.project / f"docs/r{number}.md").write_text(note(number))
        turns = [asyncio.run(_turn(place)) for _ in range(rounds + 1)][1:]
    return {
        "documents": documents,
        "passages": turns[0]["passages"],
        "encoded": turns[0]["encoded"],
        "index_passages_per_second": round(statistics.median(t["passages"] / t["index"] for t in turns), 1),
        "encode_passages_per_second": round(statistics.median(t["passages"] / t["encode"] for t in turns), 1),
        "ratio": spread([turn["encode"] / turn["index"] for turn in turns]),
        "command": {
            "seconds": spread([turn["command"] for turn in turns], 2),
            "ratio": spread([turn["encode"] / turn["command"] for turn in turns]),
        },
    }


async def _turn(place: Place) -> dict[str, Any]:
    """Index all that is there twice, with a cache that is empty: by the command, and in a process that is warm.

    In that process the very same passages are then encoded, all at once and without a cache.
    """
    place.forget()
    command, printed = place.call("--json", "workspace", "index", ".")
    place.forget()
    async with Services.open(place.env, place.project, place.project) as app, Workspace(app) as workspace:
        writer: Any = await workspace.writer()
        await writer.embed.inner.documents(["warm"])
        indexing, report = await _timed(sync(workspace.source, workspace.tier, writer))
        root = place.project
        texts = [text for path in report.indexed for text in _texts(path, (root / path).read_bytes())]
        encoding, _ = await _timed(writer.embed.inner.documents(texts))
    if {report.passages, writer.embed.encoded, json.loads(printed)["encoded"]} != {len(texts)}:
        raise SystemExit(f"{report.passages} passages, {writer.embed.encoded} encoded, {len(texts)} texts")
    seconds = {"command": command, "index": indexing, "encode": encoding}
    return {**seconds, "passages": report.passages, "encoded": writer.embed.encoded}


def _texts(path: str, data: bytes) -> list[str]:
    """Return what is embedded of a file."""
    document, _ = inspect_document(DocumentFile(path, data), policy_of("documents"))
    if document is None:
        raise SystemExit(f"{path} was refused")
    return [embedded_text(passage) for passage in split_document(document)]


async def runs(place: Place, files: int) -> dict[str, Any]:
    """Return what a run over unchanged files and one after a change take, in a process that is warm."""
    for number in range(files - 1):
        path = place.project / f"docs/{number % 100}/{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Buoy {number}\n\nBuoy {number} blinks every {number % 9 + 1} seconds.\n")
    (place.project / LONG).write_text(note(0))
    async with Services.open(place.env, place.project, place.project) as app, Workspace(app) as workspace:
        writer = await workspace.writer()
        first = await sync(workspace.source, workspace.tier, writer)
        await asyncio.sleep(SETTLED_SECONDS)
        await sync(workspace.source, workspace.tier, writer)  # takes the stamps of what was written a moment ago
        unchanged = [await _unchanged(workspace) for _ in range(7)]
        changed = [await _changed(workspace, writer, turn) for turn in range(1, 12)]
    return {
        "files": len(first.indexed),
        "passages": first.passages,
        "unchanged": {
            "milliseconds": spread([1000 * seconds for seconds, _, _ in unchanged], 1),
            "walk_and_stat_milliseconds": spread([1000 * seconds for _, seconds, _ in unchanged], 1),
            "to_walk_and_stat": spread([run / walked for run, walked, _ in unchanged]),
            "encoded": sum(encoded for _, _, encoded in unchanged),
        },
        "changed": {
            "passages": changed[-1]["passages"],
            "milliseconds": spread([1000 * c["seconds"] for c in changed], 1),
            "encoding_milliseconds": spread([1000 * c["encoding"] for c in changed], 1),
            "ratio": spread([c["seconds"] / c["encoding"] for c in changed]),
        },
    }


async def _unchanged(workspace: Workspace) -> tuple[float, float, int]:
    """Return the seconds of a run that finds nothing to do, those of walking alone, and how many texts it encoded."""
    writer: Any = await workspace.writer()
    before = writer.embed.encoded
    seconds, report = await _timed(sync(workspace.source, workspace.tier, writer))
    if report.indexed or report.removed:
        raise SystemExit(f"not unchanged: {report.indexed[:3]}")
    return seconds, timed(lambda: list(walk(workspace.config.root)))[0], writer.embed.encoded - before


async def _changed(workspace: Workspace, writer: Any, turn: int) -> dict[str, Any]:
    """Rewrite the long file, wholly; return the seconds of the run, and of encoding its passages once more."""
    text = "\n".join(note(10_000 * turn + part) for part in range(6))
    (workspace.config.root / LONG).write_text(text)
    before = writer.embed.encoded
    seconds, _ = await _timed(sync(workspace.source, workspace.tier, writer))
    texts = _texts(LONG, text.encode())
    encoding, _ = await _timed(writer.embed.inner.documents(texts))
    if writer.embed.encoded - before != len(set(texts)):
        raise SystemExit(f"{writer.embed.encoded - before} were encoded of {len(set(texts))}")
    return {"seconds": seconds, "encoding": encoding, "passages": len(texts)}


async def _timed(work: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    found = await work
    return time.perf_counter() - started, found


async def judged(place: Place) -> Mapping[str, Any]:
    """Index the judged workspace and ask its questions; return how often an answer is among the first files."""
    queries = [json.loads(line) for line in (JUDGED.parent / "workspace-queries.jsonl").read_text().splitlines()]
    async with Services.open(place.env, JUDGED, place.project) as app, Workspace(app) as workspace:
        await sync(workspace.source, workspace.tier, await workspace.writer())
        ranks = [(query, await _rank(workspace, query)) for query in queries]
    found: dict[str, Any] = {}
    for split in ("tune", "test"):
        those = [rank for query, rank in ranks if query["split"] == split]
        found[split] = {
            "queries": len(those),
            "hit@1": round(sum(rank == 1 for rank in those) / len(those), 3),
            "hit@3": round(sum(0 < rank <= 3 for rank in those) / len(those), 3),
            "mrr": round(sum(1 / rank for rank in those if rank) / len(those), 3),
        }
    return {**found, "missed": [query["query"] for query, rank in ranks if not 0 < rank <= 3]}


async def _rank(workspace: Workspace, query: Mapping[str, Any]) -> int:
    """Return the rank of the first file that answers a question, from 1; 0 where none of the first ten does."""
    reply = await workspace.search(SearchQuery(query["query"], limit=10))
    paths = list(dict.fromkeys(hit.path for hit in reply.hits))
    return next((rank for rank, path in enumerate(paths, start=1) if path in query["relevant"]), 0)


def measure(documents: int, rounds: int, files: int) -> dict[str, Any]:
    """Return everything, ready for JSON."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        warm = asyncio.run(runs(Place.below(Path(folder)), files))
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        place = Place.below(Path(folder), shared_cache=True)
        shutil.copytree(JUDGED, place.project, dirs_exist_ok=True)
        quality = asyncio.run(judged(place))
    return {"throughput": throughput(documents, rounds), **warm, "judged": quality}


def main() -> None:
    """Measure and print."""
    given = [int(argument) for argument in sys.argv[1:]]
    documents, rounds, files = (*given, *(600, 3, 4_000)[len(given) :])
    print(json.dumps(measure(documents, rounds, files), indent=1))


if __name__ == "__main__":
    main()
