"""Real trees from packages: every file parsed and split with checks, and a sample of each indexed.

Run: ``python -m benchmarks.trees [passages] [tree ...]``. Prints one JSON object. Parsing and splitting run over all
files of a tree, on all cores; ``parse_s`` is their processor time together. Embedding whole trees would take hours, so
``kiwi workspace index`` runs over a sample: files in the order of their paths' SHA-256, as long as they have no more
than `passages` passages together (2,000 when it is not said). ``index_s`` is the command whole, with an empty cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.place import MODELS_OF, Place
from benchmarks.timing import timed
from benchmarks.trees_check import Checked, check
from benchmarks.trees_fetch import TREES, NotFetched, Tree, fetched, mark_of
from kiwi_rag.sources.workspace.source import walk

PASSAGES = 2_000


def parsed(folder: Path) -> list[Checked]:
    """Check every file that an index run would find in a tree, on all cores."""
    paths = [found.path for found in walk(folder)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(partial(check, folder), paths, chunksize=8))


def sample(checked: Sequence[Checked], passages: int) -> list[Checked]:
    """Return files with at most so many passages together, the same ones every time and of no particular kind."""
    chosen, left = [], passages
    for file in sorted(checked, key=lambda file: hashlib.sha256(file.path.encode()).digest()):
        if file.passages and file.passages <= left:
            chosen.append(file)
            left -= file.passages
    return chosen


def indexed(folder: Path, chosen: Sequence[Checked]) -> dict[str, Any]:
    """Index the chosen files with an empty cache; every passage that splitting made must be in the index."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Place.below(Path(temporary))
        for file in chosen:
            target = place.project / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / file.path, target)
        seconds, printed = place.call("--json", "workspace", "index", str(place.project))
        report = json.loads(printed)
        missed = {file.path for file in chosen} - set(report["indexed"])
        if missed:
            raise SystemExit(f"{len(missed)} files were not indexed, among them {min(missed)}")
        stored = sum(path.stat().st_size for path in (place.project / ".ai/vectors").rglob("*") if path.is_file())
    return {
        "embedded_files": len(report["indexed"]),
        "embedded_passages": report["passages"],
        "encoded": report["encoded"],
        "index_s": round(seconds, 1),
        "index_mb": round(stored / 1e6, 1),
    }


def row(tree: Tree, passages: int) -> dict[str, Any]:
    """Fetch, check and index one tree; a fault or a crash fails the run, a tree that is not to be had does not."""
    cache = MODELS_OF / "trees"
    cache.mkdir(parents=True, exist_ok=True)
    try:
        folder = fetched(tree, cache)
    except NotFetched as error:
        return {"tree": tree.name, "source": tree.source, "not_fetched": str(error)}
    wall, checked = timed(lambda: parsed(folder))
    faults = [fault for file in checked for fault in file.faults]
    if faults:
        raise SystemExit(f"{tree.name}: {len(faults)} faults, the first: {faults[0]}")
    figures = {"version": mark_of(tree, cache).read_text(), **summary(checked), "parse_wall_s": round(wall, 1)}
    return {"tree": tree.name, "source": tree.source, **figures, **indexed(folder, sample(checked, passages))}


def summary(checked: Sequence[Checked]) -> dict[str, Any]:
    """Return the figures of a parsed tree."""
    kept = [file for file in checked if file.kept]
    seconds = sum(file.seconds for file in checked)
    megabytes = sum(file.size for file in kept) / 1e6
    slowest = max(checked, key=lambda file: file.seconds)
    letters = sum(file.letters for file in kept)
    return {
        "files": len(kept),
        "left_out": len(checked) - len(kept),
        "mb": round(megabytes, 2),
        "file_types": dict(Counter(file.file_type for file in kept)),
        "passages": sum(file.passages for file in kept),
        "parse_s": round(seconds, 1),
        "mb_per_s": round(megabytes / seconds, 2),
        "slowest": {"path": slowest.path, "mb": round(slowest.size / 1e6, 2), "s": round(slowest.seconds, 2)},
        "warnings": dict(sum((file.warnings for file in checked), Counter())),
        "unseen_share": round(sum(file.unseen for file in kept) / letters, 5) if letters else 0.0,
    }


def main() -> None:
    """Print a row for each tree."""
    count, *names = sys.argv[1:] or [str(PASSAGES)]
    chosen = [tree for tree in TREES if not names or tree.name in names]
    print(json.dumps({"sample_passages": int(count), "trees": [row(tree, int(count)) for tree in chosen]}))


if __name__ == "__main__":
    main()
