"""How good is the ranking? Judged queries through the very searcher that people use, beside two baselines.

The rows: ``grep`` (files ranked by how many words of the query they hold), ``bm25`` (the words leg alone),
``vectors`` (the vector leg alone), ``hybrid`` (both, with the tuned weight or the one asked for).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.model import Filters, SearchQuery
from kiwi_rag.search import metrics
from kiwi_rag.search.federate import HybridSearchHandler
from kiwi_rag.signing import statement
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.tiers import Tier

_WORD = re.compile(r"[a-z0-9]{3,}")
DEPTH = 20


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """A query and the grades (1 or 2) of the items that answer it, by ``type:id``."""

    text: str
    kind: str
    grades: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Row:
    """One method's means over all queries."""

    method: str
    ndcg10: float
    hit3: float
    mrr: float


def load(path: Path) -> list[JudgedQuery]:
    """Read judged queries: JSON lines with ``query``, ``relevant`` (id → grade) and optionally ``kind``.

    Raises
    ------
    SourceUnreadable
        When the file cannot be read.
    UsageError
        When a line is not such a query.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceUnreadable(f"cannot read {path}: {error}") from error
    queries = [_query(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.strip()]
    if not queries:
        raise UsageError(f"{path} holds no queries")
    return queries


async def evaluate(
    queries: Sequence[JudgedQuery],
    searcher: HybridSearchHandler,
    tiers: Sequence[Tier[VectorStore]],
    alpha: float | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Row]:
    """Return one row a method; every query runs once a method."""
    texts = await _texts(tiers)
    rows = [_row("grep", [(_grep(q.text, texts), q) for q in queries])]
    progress(len(queries))
    for method, weight in (("bm25", 0.0), ("vectors", 1.0), ("hybrid", alpha)):
        answers = []
        for query in queries:
            reply = await searcher.search(SearchQuery(query.text, limit=DEPTH, alpha=weight))
            answers.append(([f"{h.ref.item_type}:{h.ref.item_id}" for h in reply.hits], query))
            progress(1)
        rows.append(_row(method, answers))
    return rows


def _row(method: str, answers: Sequence[tuple[list[str], JudgedQuery]]) -> Row:
    return Row(
        method,
        metrics.mean([metrics.ndcg(ranked, q.grades) for ranked, q in answers]),
        metrics.mean([metrics.hit(ranked, q.grades) for ranked, q in answers]),
        metrics.mean([metrics.reciprocal_rank(ranked, q.grades) for ranked, q in answers]),
    )


async def _texts(tiers: Sequence[Tier[VectorStore]]) -> dict[str, str]:
    stored = [item for tier in tiers for item in await tier.store.list(Filters())]
    return {
        f"{item.ref.item_type}:{item.ref.item_id}": statement.parse(item.envelope.payload).content.lower()
        for item in stored
    }


def _grep(query: str, texts: Mapping[str, str]) -> list[str]:
    """Rank as ``grep -i -c`` for each word would: by distinct words found, then by how often, then by name."""
    words = set(_WORD.findall(query.lower()))
    counts = {ref: [text.count(word) for word in words] for ref, text in texts.items()}
    keyed = [(-sum(n > 0 for n in found), -sum(found), ref) for ref, found in counts.items() if any(found)]
    return [ref for *_, ref in sorted(keyed)[:DEPTH]]


def _query(line: str, where: str) -> JudgedQuery:
    try:
        document = json.loads(line)
        grades = {str(ref): int(grade) for ref, grade in document["relevant"].items()}
        return JudgedQuery(str(document["query"]), str(document.get("kind", "")), grades)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{where} is not a judged query", hint='{"query": "…", "relevant": {"type:id": 2}}') from error
