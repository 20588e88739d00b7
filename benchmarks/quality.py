"""How good is the ranking, on judged queries: the real commands, over items that were signed and admitted.

Run: ``python -m benchmarks.quality [collection …]``. Prints one JSON object. The collections:

``fitz-gov``
    Weights are chosen on the queries with an even SHA-256 and everything is reported on the odd ones, the registry's
    BM25 and bm25s' among it.
``fitz-gov-untitled``
    The same without the titles. Many of these are close to the queries: they help every method, words most of all.
    The registry is left out here: it was asked with titles, and publishing takes minutes.
``corpus``, ``acme``
    The items of an agent project (beside a checkout: ``KIWI_SHARED``) and the example items,
    with the weights as shipped. Where the first is not there, it is skipped, and says so.

No time is measured here but that of single queries, so vectors that an earlier run left in the cache are used again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import fitz_gov, weights
from benchmarks.bootstrap import Interval, intervals, ratio
from benchmarks.compare import read
from benchmarks.place import Place
from kiwi_rag.evaluation.judgements import Dataset, load, ndcg
from kiwi_rag.evaluation.runs import MAIN, Run
from kiwi_rag.search.ranking import default_weights, read_weights
from tests.shared import CORPUS, NEEDS_SHARED, QUERIES, ROOT

SQL_QUERIES = 500
"""So many of the reported queries are asked of the registry, too: enough to see that it ranks as a local tier does."""


def index(place: Place) -> None:
    """Sign and index everything; what the gate refuses is left out."""
    place.run("sign", ".ai", accept=(0, 4))
    place.run("index", accept=(0, 3, 4))


def evaluate(place: Place, queries: Path, name: str, *options: str) -> Run:
    """Run ``kiwi eval`` and return what it wrote."""
    out = place.project / f"{name}.json"
    place.run("eval", str(queries), "--out", str(out), *options)
    return read(out)


def write_queries(path: Path, queries: Sequence[Mapping[str, Any]]) -> Path:
    """Write judged queries as JSON lines."""
    path.write_text("".join(json.dumps(query, ensure_ascii=False) + "\n" for query in queries), encoding="utf-8")
    return path


def fitz(place: Place, *, titled: bool) -> dict[str, Any]:
    """Measure on fitz-gov."""
    documents, queries = fitz_gov.documents_and_queries()
    fitz_gov.write_documents(place.project, documents, titled=titled)
    index(place)
    everything = write_queries(place.project / "all.jsonl", queries)
    odd = [q for q in queries if int(hashlib.sha256(q["query"].encode()).hexdigest(), 16) % 2]
    reported = write_queries(place.project / "odd.jsonl", odd)
    chosen = choose_weights(place, load(everything))
    run = evaluate(place, reported, "run", "--source", "project", "--weights", str(chosen))
    shipped = evaluate(place, reported, "shipped", "--source", "project", "--method", "hybrid")
    words = {name: fitz_gov.text_of(document, titled=titled) for name, document in documents.items()}
    judged = load(reported)
    peer = bm25s_column(words, judged)
    local, hybrid, leg = run.column("bm25", MAIN), run.column("hybrid", MAIN), better_leg(run)
    found = {
        "documents": len(documents),
        **figures(run),
        "weights": json.loads(chosen.read_text())["weights"],
        "hybrid_with_weights_as_shipped": rounded(intervals({MAIN: shipped.column("hybrid", MAIN)})[MAIN]),
        "bm25s": rounded(intervals({MAIN: peer})[MAIN]),
        "ratios": {
            f"hybrid / better leg ({leg})": rounded(ratio(hybrid, run.column(leg, MAIN))),
            "hybrid / BM25": rounded(ratio(hybrid, run.column("bm25", MAIN))),
            "hybrid / bm25s": rounded(ratio(hybrid, peer)),
            "BM25 / bm25s": rounded(ratio(local, peer)),
        },
    }
    if titled:
        sql = sql_bm25(place, replace(judged, queries=judged.queries[:SQL_QUERIES]), chosen)
        found["sql_bm25_first_queries"] = rounded(intervals({MAIN: sql})[MAIN])
        found["sql_bm25_other_than_local"] = sum(abs(a - b) > 1e-9 for a, b in zip(sql, local, strict=False))
        found["ratios"][f"SQL BM25 / bm25s, first {len(sql)} queries"] = rounded(ratio(sql, peer[: len(sql)]))
    return found


def choose_weights(place: Place, dataset: Dataset) -> Path:
    """Choose the fusion's weights on the even half of the queries; return the file that holds them."""
    path = place.project / "weights.json"
    captured = asyncio.run(weights.captured_from(place.env, place.project, "project", dataset))
    weights.write(weights.tune(captured, default_weights()), dataset, path)
    return path


def better_leg(run: Run) -> str:
    """Return the leg with the higher mean of `MAIN`."""
    return max(("bm25", "vectors"), key=lambda leg: sum(run.column(leg, MAIN)))


def bm25s_column(words: Mapping[str, str], dataset: Dataset) -> list[float]:
    """Return nDCG@10 a query of bm25s over whole documents, with its English stop words and Snowball stems."""
    import bm25s
    import Stemmer

    stemmer, names = Stemmer.Stemmer("english"), [f"knowledge:fitz/{name.replace('_', '-')}" for name in words]
    index = bm25s.BM25()
    index.index(_bm25s_tokens(list(words.values()), stemmer), show_progress=False)
    column = []
    for query in dataset.queries:
        tokens = _bm25s_tokens([query.query], stemmer)
        found, scores = index.retrieve(tokens, k=10, show_progress=False)
        ranked = [names[n] for n, score in zip(found[0], scores[0], strict=True) if score > 0]
        column.append(ndcg(ranked, query.relevant))
    return column


def _bm25s_tokens(texts: list[str], stemmer: Any) -> Any:
    import bm25s

    return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)


def sql_bm25(place: Place, dataset: Dataset, chosen: Path) -> list[float]:
    """Publish everything to an embedded registry; return nDCG@10 a query of its words leg, as its SQL scores it."""
    place.run("registry", "start")
    try:
        place.run("publish", "--all", accept=(0, 4))
        captured = asyncio.run(weights.captured_from(place.env, place.project, "registry", dataset))
    finally:
        place.run("registry", "stop")
    words = replace(read_weights(str(chosen)), alpha=0.0)
    return [ndcg(found.ranked(words), found.query.relevant) for found in captured]


def shelf(place: Place, items: Path, queries: Path) -> dict[str, Any]:
    """Measure on items that are there as files, with the weights as shipped."""
    if not items.is_dir():
        return {"skipped": NEEDS_SHARED}
    place.copy_in(items)
    index(place)
    run = evaluate(place, queries, "run", "--source", "project")
    leg = better_leg(run)
    hybrid = run.column("hybrid", MAIN)
    ratios = {
        f"hybrid / better leg ({leg})": rounded(ratio(hybrid, run.column(leg, MAIN))),
        "hybrid / BM25": rounded(ratio(hybrid, run.column("bm25", MAIN))),
    }
    return {**figures(run), "weights": run.about["weights"], "ratios": ratios}


def figures(run: Run) -> dict[str, Any]:
    """Return the table of a run: each method's metrics with 95% intervals, and milliseconds a query."""
    import numpy as np

    table = {}
    for method in run.methods:
        answers = run.answers(method)
        found = intervals({name: run.column(method, name) for name in answers[0].metrics})
        p50, p95 = np.percentile([answer.ms for answer in answers], [50, 95])
        table[method] = {name: rounded(value) for name, value in found.items()}
        table[method]["ms"] = {"p50": round(float(p50), 2), "p95": round(float(p95), 2)}
    return {
        "queries": len(run.queries),
        "tiers": run.about["tiers"],
        "missing": len(run.about["missing"]),
        "rows": table,
    }


def rounded(value: Interval) -> dict[str, float]:
    """Return a mean with its interval, to three places."""
    return {name: round(number, 3) for name, number in value.as_dict().items()}


COLLECTIONS = {
    "acme": lambda place: shelf(place, ROOT / "examples/acme/.ai", ROOT / "examples/acme/queries.jsonl"),
    "corpus": lambda place: shelf(place, CORPUS, QUERIES),
    "fitz-gov": lambda place: fitz(place, titled=True),
    "fitz-gov-untitled": lambda place: fitz(place, titled=False),
}


def main() -> None:
    """Measure and print."""
    results = {}
    for name in sys.argv[1:] or COLLECTIONS:
        with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
            results[name] = COLLECTIONS[name](Place.below(Path(folder), shared_cache=True))
    json.dump(results, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
