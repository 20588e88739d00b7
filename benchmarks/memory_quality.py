"""How good is the search of a conversation memory: LoCoMo's judged questions, whose data Kiwi does not distribute.

Run: ``python -m benchmarks.memory_quality locomo10.json --chosen conv-26``. Prints MEMORY.md. The weights of
the search were chosen on the conversation that is named, and the tables are of the others. Each conversation is a
memory of its own, indexed and searched as users have it. The second table takes one part of the ranking away at a time,
and the third compares with each leg and RRF, question by question.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.bootstrap import difference
from benchmarks.place import Place
from kiwi_rag.evaluation.memory import ALL, METHODS, UNITS, Conversation, FoundEvidence, evaluate, load, summarise
from kiwi_rag.model import FusionWeights
from kiwi_rag.search import exchanges
from kiwi_rag.services import Services
from kiwi_rag.usecases.memory import temporary_memory

K = 10
WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "neighbours": {"NEIGHBOUR_SHARE": 0.0},
    "speaker": {"SPEAKER_BONUS": 0.0},
    "exchange's words": {"WEIGHTS": replace(exchanges.WEIGHTS, whole=0.0)},
    "exchange's vector": {"WEIGHTS": replace(exchanges.WEIGHTS, centroid=0.0)},
    "all of these": {"NEIGHBOUR_SHARE": 0.0, "SPEAKER_BONUS": 0.0, "WEIGHTS": FusionWeights(exchanges.WEIGHTS.alpha)},
}
"""What is taken away, and the constants of `kiwi_rag.search.exchanges` that do it."""
TITLE = (
    "# The search of a conversation memory\n\nBy `python -m benchmarks.memory_quality` over conversations of LoCoMo.\n"
)
PUBLISHED = "basic-memory publishes recall@5 .774 and recall@10 .875, with a larger model and units of its own."


async def measure(app: Services, conversations: Sequence[Conversation]) -> list[FoundEvidence]:
    """Ask every question by every method, and by the hybrid without each part, which is a method ``- part``."""
    found = []
    for conversation in conversations:
        async with temporary_memory(app, conversation.exchanges) as memory:
            found += await evaluate(conversation, memory.search)
            for name, constants in WITHOUT.items():
                with _constants(constants):
                    found += await evaluate(conversation, memory.search, {f"- {name}": {}})
    return found


@contextmanager
def _constants(values: Mapping[str, Any]) -> Iterator[None]:
    with patch.multiple(exchanges, **values):
        yield


def report(found: Sequence[FoundEvidence], chosen: str) -> Iterator[str]:
    """Yield the lines of MEMORY.md: of the conversations that nothing was chosen on, if there are any."""
    others = [one for one in found if one.conversation != chosen]
    names = ", ".join(dict.fromkeys(one.conversation for one in others or found))
    yield TITLE
    yield f"Chosen on {chosen}, reported on {names}. Means with their 95% intervals.\n"
    rows = summarise(others or found, K)
    yield from _table([row for row in rows if row["method"] in METHODS], ("unit", "category", "questions", "method"))
    yield f"\n{PUBLISHED}\n\nThe hybrid without a part, over all categories:\n"
    kept = [row for row in rows if row["category"] == ALL and row["method"] not in ("bm25", "vectors", "rrf")]
    yield from _table(kept, ("unit", "method"))
    yield f"\nWhat the hybrid finds more of at {K}:\n"
    yield from _differences(others or found)


def _table(rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Iterator[str]:
    metrics = list(rows[0]["metrics"])
    yield f"| {' | '.join([*labels, *metrics])} |"
    yield "| " + " | ".join("---" for _ in [*labels, *metrics]) + " |"
    for row in rows:
        cells = [f"{m['mean']:.3f} [{m['low']:.3f}, {m['high']:.3f}]" for m in row["metrics"].values()]
        yield f"| {' | '.join([*(str(row[label]) for label in labels), *cells])} |"


def _differences(found: Sequence[FoundEvidence]) -> Iterator[str]:
    yield "| unit | than | recall@10 | p |\n| --- | --- | --- | --- |"
    for unit in UNITS:
        recall = {
            method: [one.metrics(unit, K)[f"recall@{K}"] for one in found if one.method == method] for method in METHODS
        }
        for other in ("bm25", "vectors", "rrf"):
            more = difference(recall["hybrid"], recall[other])
            yield f"| {unit} | {other} | {more.mean:+.3f} [{more.low:+.3f}, {more.high:+.3f}] | {more.p:.3f} |"


async def _measured(path: Path, place: Place) -> list[FoundEvidence]:
    async with Services.open(place.env, place.project, place.project) as app:
        return await measure(app, load(path))


def main() -> None:
    """Print MEMORY.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="conversations in the form of LoCoMo")
    parser.add_argument("--chosen", default="conv-26", help="the conversation that the weights were chosen on")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        found = asyncio.run(_measured(given.file, Place.below(Path(folder))))
    print("\n".join(report(found, given.chosen)))


if __name__ == "__main__":
    main()
