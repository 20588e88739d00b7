"""How good is the ranking of documentation by pages: judged questions over the documentation of packages.

Run: ``python -m benchmarks.library_quality [package …]``. Prints one JSON object. The archives are fetched by npm and
pip and kept in the cache; vectors that an earlier run left there are used again, and no time is measured.
``tests/data/library-queries.jsonl`` has the questions: those of the splits ``tune`` and ``more`` were used to choose
the ranking, those of ``report`` and ``third`` are over other packages and were not. Each package is an index of its
own.

``hybrid`` is the search as users have it. ``vectors`` and ``bm25`` are its legs alone: pages in the order of their
best passage by cosine, or by BM25. ``passages`` is both together without anything about pages, names or the form of the
question. ``grep`` ranks pages by how many of the words they contain, and then how often.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.place import MODELS_OF, Place
from benchmarks.trees_fetch import NotFetched, documentation, fetched
from kiwi_rag.evaluation.judgements import hit, reciprocal_rank
from kiwi_rag.evaluation.runs import grep
from kiwi_rag.lexical import max_term_score
from kiwi_rag.model import Candidate, SearchQuery, SearchReply
from kiwi_rag.search.ranking import default_weights, normalise_cosine, saturate_bm25
from kiwi_rag.search.tier_query import TierQuery, fetch_candidates, prepare_query
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from tests.shared import ROOT

QUERIES = ROOT / "tests/data/library-queries.jsonl"
METHODS = ("hybrid", "passages", "vectors", "bm25", "grep")
SECONDS = 60.0
"""A busy machine must not change a ranking."""


@dataclass
class Question:
    """A judged question, and for each method the pages that it found, best first."""

    id: str
    package: str
    split: str
    kind: str
    query: str
    relevant: Sequence[str]
    pages: dict[str, list[str]] = field(default_factory=dict)

    def metrics(self, method: str) -> tuple[float, float]:
        """Return the reciprocal rank within ten pages, and whether an answer is among the first five."""
        grades = dict.fromkeys(self.relevant, 1)
        return reciprocal_rank(self.pages[method], grades), hit(self.pages[method], grades, 5)


def questions(names: Sequence[str] = ()) -> list[Question]:
    """Return the judged questions, of all packages or of those that are named as in ``npm:fastify@5.12.8``."""
    rows = [json.loads(line) for line in QUERIES.read_text(encoding="utf-8").splitlines()]
    return [Question(**row) for row in rows if not names or row["package"] in names]


async def ask(place: Place, root: Path, asked: Sequence[Question]) -> None:
    """Index one package's documentation and ask its questions, by each method."""
    texts = {str(path.relative_to(root)): path.read_text("utf-8", "replace").lower() for path in _files(root)}
    async with Services.open(place.env, root, root) as app, Workspace(app) as workspace:
        await workspace.update(await workspace.writer())
        by_words = grep(texts, 10)
        for question in asked:
            reply = await workspace.search(SearchQuery(question.query, limit=10, per_file=1))
            question.pages = {"hybrid": _pages(reply), **await _legs(app, workspace, question.query)}
            question.pages["grep"] = [names[0] for names, _ in (await by_words(question.query))[0]]


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and ".ai" not in path.parts]


def _pages(reply: SearchReply) -> list[str]:
    return list(dict.fromkeys(hit.ref.item_id for hit in reply.hits))


async def _legs(app: Services, workspace: Workspace, text: str) -> dict[str, list[str]]:
    """Return the pages of each leg alone, and of both by passages alone."""
    tier_queries = [TierQuery(workspace.tier, SECONDS)]
    query, _, _ = await prepare_query(SearchQuery(text), tier_queries, app.embed)
    query = await fetch_candidates(tier_queries, query)
    alpha, rarest = default_weights().alpha, max_term_score(query.statistics)
    scores: Mapping[str, Callable[[Candidate], float]] = {
        "vectors": lambda c: c.cosine,
        "bm25": lambda c: c.bm25,
        "passages": lambda c: alpha * normalise_cosine(c.cosine) + (1 - alpha) * saturate_bm25(c.bm25, rarest),
    }
    found = tier_queries[0].candidates.items
    ranked = {name: sorted(found, key=lambda c: (-score(c), c.ref.item_id)) for name, score in scores.items()}
    return {name: list(dict.fromkeys(c.ref.item_id for c in order))[:10] for name, order in ranked.items()}


def figures(asked: Sequence[Question]) -> dict[str, Any]:
    """Return MRR and hit@5 of each method, and the hybrid's MRR by kind of question."""
    found: dict[str, Any] = {"questions": len(asked)}
    for method in METHODS:
        ranks, hits = zip(*(question.metrics(method) for question in asked), strict=True)
        found[method] = {"mrr": round(fmean(ranks), 3), "hit@5": round(fmean(hits), 3)}
    better = max(found[leg]["mrr"] for leg in ("vectors", "bm25"))
    kinds = {
        kind: [q.metrics("hybrid")[0] for q in asked if q.kind == kind] for kind in sorted({q.kind for q in asked})
    }
    found["hybrid / better leg"] = round(found["hybrid"]["mrr"] / better, 3)
    return {**found, "hybrid's mrr by kind": {kind: round(fmean(ranks), 3) for kind, ranks in kinds.items()}}


def measure(names: Sequence[str]) -> dict[str, Any]:
    """Return the figures of each split and of the first two together; packages that were not fetched are named."""
    cache, everything, missing = MODELS_OF / "trees", questions(names), dict[str, str]()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as temporary:
        place = Place.below(Path(temporary), shared_cache=True)
        for package in dict.fromkeys(question.package for question in everything):
            try:
                tree, root = documentation(package), place.project / package.replace(":", "-").replace("/", "-")
                shutil.copytree(fetched(tree, cache), root)
            except NotFetched as error:
                missing[package] = str(error)
                continue
            (root / ".ai").mkdir()
            asyncio.run(ask(place, root, [question for question in everything if question.package == package]))
    asked = [question for question in everything if question.pages]
    splits = {"tune and report": ("tune", "report"), **{name: (name,) for name in ("tune", "more", "report", "third")}}
    parts = {name: [q for q in asked if q.split in chosen] for name, chosen in splits.items()}
    late = {q.id: q.pages["hybrid"][:3] for q in asked if q.metrics("hybrid")[0] < 1}
    return {**{name: figures(part) for name, part in parts.items() if part}, "not first": late, "not fetched": missing}


def table(results: Mapping[str, Any]) -> list[str]:
    """Return the results as Markdown: a line for each split and method."""
    lines = [
        "",
        "Judged questions over the documentation of packages (`tests/data/library-queries.jsonl`), by page. The",
        "ranking was chosen on the questions of `tune` and `more`; those of `report` and `third` are over other",
        "packages.",
        "",
        "| split | questions | method | MRR | hit@5 |",
        "| --- | --- | --- | --- | --- |",
    ]
    splits = {name: found for name, found in results.items() if isinstance(found, Mapping) and "questions" in found}
    for name, found in splits.items():
        for method in METHODS:
            row = found[method]
            lines.append(f"| {name} | {found['questions']} | {method} | {row['mrr']:.3f} | {row['hit@5']:.3f} |")
    lines += ["", *(f"- not fetched: {name}: {why}" for name, why in results.get("not fetched", {}).items())]
    return lines


def main() -> None:
    """Measure and print."""
    print(json.dumps(measure(sys.argv[1:]), indent=1))


if __name__ == "__main__":
    main()
