"""The default model in int8 beside the same weights in float32: nDCG@10 on four judged sets, rate and size.

Run: ``python -m benchmarks.models``. Prints one JSON object. The sets are those of `quality`, with the weights of the
ranking as shipped, and the judged workspace of the tests. The rate is that of stretches of equal length, in alternating
rounds. It is no part of ``make bench``, for each set is embedded twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import fitz_gov
from benchmarks.encode import CACHE, TEXTS, TOKENS, alternating, texts_of
from benchmarks.place import Place
from benchmarks.quality import evaluate, figures, index, shelf, write_queries
from benchmarks.workspace import JUDGED
from kiwi_rag.embedding.factory import load_provider
from kiwi_rag.embedding.weights import INT8_MODEL, MODEL, ModelSource, onnx_files
from kiwi_rag.evaluation.judgements import ndcg
from kiwi_rag.evaluation.runs import MAIN
from kiwi_rag.ingest.sync import sync
from kiwi_rag.model import SearchQuery
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from tests.shared import CORPUS, QUERIES, ROOT

MODELS = (MODEL, INT8_MODEL)


def items(place: Place, folder: Path, queries: Path) -> Mapping[str, Any]:
    """Return nDCG@10 of vectors alone and of hybrid ranking over items that are there as files."""
    found = shelf(place, folder, queries)
    return found if "skipped" in found else {name: found["rows"][name][MAIN] for name in ("vectors", "hybrid")}


def fitz(place: Place) -> Mapping[str, Any]:
    """Return the same over fitz-gov, on the half of the queries that everything is reported on."""
    documents, queries = fitz_gov.documents_and_queries()
    fitz_gov.write_documents(place.project, documents, titled=True)
    index(place)
    odd = [query for query in queries if int(hashlib.sha256(query["query"].encode()).hexdigest(), 16) % 2]
    run = evaluate(place, write_queries(place.project / "odd.jsonl", odd), "run", "--source", "project")
    return {name: figures(run)["rows"][name][MAIN] for name in ("vectors", "hybrid")}


def workspace(place: Place) -> Mapping[str, Any]:
    """Return the same over the files of the judged workspace."""
    shutil.copytree(JUDGED, place.project, dirs_exist_ok=True)
    return asyncio.run(_workspace(place))


async def _workspace(place: Place) -> Mapping[str, Any]:
    queries = [json.loads(line) for line in (JUDGED.parent / "workspace-queries.jsonl").read_text().splitlines()]
    async with Services.open(place.env, JUDGED, place.project) as app, Workspace(app) as opened:
        await sync(opened.source, opened.tier, await opened.writer())
        columns = {name: [await _ndcg(opened, query, alpha) for query in queries] for name, alpha in _ALPHAS.items()}
    return {name: {"mean": round(statistics.fmean(column), 3)} for name, column in columns.items()}


_ALPHAS: Mapping[str, float | None] = {"vectors": 1.0, "hybrid": None}


async def _ndcg(opened: Workspace, query: Mapping[str, Any], alpha: float | None) -> float:
    reply = await opened.search(SearchQuery(query["query"], limit=20, alpha=alpha))
    return ndcg(list(dict.fromkeys(hit.path for hit in reply.hits)), dict.fromkeys(query["relevant"], 1))


SETS: Mapping[str, Callable[[Place], Mapping[str, Any]]] = {
    "example items": lambda place: items(place, ROOT / "examples/acme/.ai", ROOT / "examples/acme/queries.jsonl"),
    "items of an agent project": lambda place: items(place, CORPUS, QUERIES),
    "fitz-gov": fitz,
    "documents of a workspace": workspace,
}


def judged(model: str) -> Mapping[str, Any]:
    """Return the figures of one model on every set."""
    found = {}
    for name, measure in SETS.items():
        with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
            place = Place.below(Path(folder), shared_cache=True)
            found[name] = measure(replace(place, env={**place.env, "KIWI_EMBEDDING_MODEL": model}))
    return found


def rates() -> Mapping[str, Any]:
    """Return stretches a second by model: the median, lowest and highest of the rounds."""
    if not CORPUS.is_dir():
        return {}
    providers = {model: load_provider("onnx", cache_dir=CACHE, model=model).uncached for model in MODELS}
    times = alternating(providers, texts_of(TOKENS, TEXTS))
    return {model: [round(f(rounds), 1) for f in (statistics.median, min, max)] for model, rounds in times.items()}


def main() -> None:
    """Measure and print."""
    sizes = {model: onnx_files(ModelSource(CACHE / "models", model=model)).onnx.stat().st_size for model in MODELS}
    found = {"texts_per_second": rates(), "bytes": sizes, "ndcg@10": {model: judged(model) for model in MODELS}}
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
