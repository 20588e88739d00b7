"""A workspace's index: throughput beside raw encoding, a run over unchanged files, one changed file of thousands.

Run: ``python -m benchmarks.workspace [documents] [rounds] [files]``. Prints one JSON object. Throughput is the command
whole, with an empty cache, beside encoding the very same passages and nothing else (as `benchmarks.index_throughput`
has it). The other two are runs inside one process whose model is loaded, over `files` files, one of which is long:
unchanged, beside walking and a stat call a file; and with the long one rewritten, beside encoding its new passages.
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

from benchmarks.index_throughput import Sides, note
from benchmarks.place import Place
from benchmarks.timing import spread, timed
from kiwi_rag.app import App
from kiwi_rag.app.workspace import Workspace
from kiwi_rag.model.documents import DocumentQuery
from kiwi_rag.passages import embedded_text, split_document
from kiwi_rag.validation.documents import DocumentFile, inspect_document
from kiwi_rag.validation.policy import policy_of
from kiwi_rag.workspace.indexing import index
from kiwi_rag.workspace.searching import best_paths
from kiwi_rag.workspace.walking import walk
from tests.shared import ROOT

JUDGED = ROOT / "tests/data/workspace"
LONG = "docs/long.md"
SETTLED_SECONDS = 2.5
"""A file that changed a moment ago is read once more; so the clock is given time before a run that is measured."""


class Documents(Sides):
    """Both sides of the throughput: a folder of Markdown in place of signed items."""

    def __init__(self, place: Place, documents: int) -> None:
        self.place = place
        folder = place.project / "docs"
        folder.mkdir()
        for number in range(documents):
            (folder / f"r{number}.md").write_text(note(number))

    def index(self) -> dict[str, Any]:
        """Index with an empty cache; return seconds, passages and how many were encoded."""
        self.forget()
        seconds, printed = self.place.call("--json", "workspace", "index", ".")
        report = json.loads(printed)
        return {"seconds": seconds, "passages": report["passages"], "encoded": report["encoded"]}


def throughput(documents: int, rounds: int) -> dict[str, Any]:
    """Return passages a second of both sides, and the ratio of each round."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        side = Documents(Place.below(Path(folder)), documents)
        side.index()  # so that nothing is read from the disk for the first time
        turns = [(side.index(), side.encode()) for _ in range(rounds)]
    passages = turns[0][0]["passages"]
    return {
        "documents": documents,
        "passages": passages,
        "distinct_texts": turns[0][1]["distinct"],
        "encoded": turns[0][0]["encoded"],
        "index_passages_per_second": round(passages / statistics.median(i["seconds"] for i, _ in turns), 1),
        "encode_passages_per_second": round(passages / statistics.median(e["seconds"] for _, e in turns), 1),
        "ratio": spread([encoded["seconds"] / indexed["seconds"] for indexed, encoded in turns]),
    }


async def runs(place: Place, files: int) -> dict[str, Any]:
    """Return what a run over unchanged files and one after a change take, in a process that is warm."""
    for number in range(files - 1):
        path = place.project / f"docs/{number % 100}/{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Buoy {number}\n\nBuoy {number} blinks every {number % 9 + 1} seconds.\n")
    (place.project / LONG).write_text(note(0))
    async with App.open(place.env, place.project, place.project) as app, Workspace(app) as workspace:
        await workspace.prepare()
        writer = workspace.writer()
        first = await index(workspace.place, workspace.tier, writer)
        await asyncio.sleep(SETTLED_SECONDS)
        await index(workspace.place, workspace.tier, writer)  # takes the stamps of what was written a moment ago
        unchanged = [await _unchanged(workspace) for _ in range(7)]
        changed = [await _changed(workspace, writer, turn) for turn in range(1, 6)]
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
    writer: Any = workspace.writer()
    before = writer.embed.encoded
    seconds, report = await _timed(index(workspace.place, workspace.tier, writer))
    if report.indexed or report.removed:
        raise SystemExit(f"not unchanged: {report.indexed[:3]}")
    return seconds, timed(lambda: list(walk(workspace.place.root)))[0], writer.embed.encoded - before


async def _changed(workspace: Workspace, writer: Any, turn: int) -> dict[str, Any]:
    """Rewrite the long file, wholly; return the seconds of the run, and of encoding its passages once more."""
    text = "\n".join(note(10_000 * turn + part) for part in range(6))
    (workspace.place.root / LONG).write_text(text)
    before = writer.embed.encoded
    seconds, _ = await _timed(index(workspace.place, workspace.tier, writer))
    document, _ = inspect_document(DocumentFile(LONG, text.encode()), policy_of("documents"))
    if document is None:
        raise SystemExit("the long file was refused")
    texts = [embedded_text(passage) for passage in split_document(document)]
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
    async with App.open(place.env, JUDGED, place.project) as app, Workspace(app) as workspace:
        await workspace.prepare()
        await index(workspace.place, workspace.tier, workspace.writer())
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
    paths = best_paths((await workspace.searcher.search(DocumentQuery(query["query"], limit=10))).hits)
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
    documents, rounds, files = (*given, *(600, 2, 4_000)[len(given) :])
    print(json.dumps(measure(documents, rounds, files), indent=1))


if __name__ == "__main__":
    main()
