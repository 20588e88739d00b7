"""How often "nothing is close" is right: for judged queries, and for queries about other subjects.

Run: ``python -m benchmarks.closeness``. Prints one JSON object. The judged queries of one collection are queries about
other subjects for the others; `NONSENSE` are about none of them. A judged query counts if an answer is among the hits.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import fitz_gov
from benchmarks.place import Place
from benchmarks.quality import index
from kiwi_rag import usecases
from kiwi_rag.model import SearchQuery, SearchReply, SearchResult
from kiwi_rag.search.diversify import ItemChoice
from kiwi_rag.search.passages import PassageChoice
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from tests.shared import CORPUS, QUERIES, ROOT

FITZ_QUERIES = 250
NONSENSE = """\
colorless green ideas sleep furiously|best chocolate cake recipe with almonds|who won the 1998 football world cup
symptoms of vitamin d deficiency|asdf qwer zxcv|lorem ipsum dolor sit amet|how to train a puppy to sit|zzzz
mortgage interest rates in portugal|frobnicate the quux gizmo|capital of mongolia|beethoven fifth symphony conductor
photosynthesis in desert plants|cheap flights to bali in july|why is the sky blue|knitting pattern for socks
how do black holes evaporate|grandmother's apple pie|tennis racket string tension|medieval castle architecture
blargh wibble fnord|used car engine knocks when cold|yoga poses for back pain|history of the ottoman empire
guitar chords for beginners|growing tomatoes on a balcony|what is love|tax return deadline in france
marathon training plan for beginners|python snake habitat"""
Judged = Mapping[str, Collection[str]]
"""Query → what answers it."""
Search = Callable[[str], Awaitable[SearchReply]]


def judged(path: Path) -> Judged:
    """Return the judged queries of a file."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["query"]: set(row["relevant"]) for row in rows}


def fitz() -> Judged:
    """Return some of fitz-gov's queries, spread over all of them."""
    queries = fitz_gov.documents_and_queries()[1]
    return {row["query"]: set(row["relevant"]) for row in queries[:: len(queries) // FITZ_QUERIES]}


async def rates(search: Search, own: str, sets: Mapping[str, Judged]) -> dict[str, Any]:
    """Return the share of each set's queries to which nothing is close, and how many were counted."""
    found: dict[str, Any] = {}
    for name, queries in sets.items():
        replies = [(await search(query), relevant) for query, relevant in queries.items()]
        counted = [
            reply for reply, relevant in replies if name != own or any(_id(hit) in relevant for hit in reply.hits)
        ]
        share = sum(reply.close is False for reply in counted) / len(counted)
        found[name] = {"queries": len(counted), "not_close": round(share, 3)}
    return found


def _id(hit: SearchResult) -> str:
    return hit.path if hit.tier == "workspace" else f"{hit.ref.item_type.value}:{hit.ref.item_id}"


async def _items(place: Place, own: str, sets: Mapping[str, Judged]) -> dict[str, Any]:
    async with Services.open(place.env, place.project, place.project) as app:

        async def search(query: str) -> SearchReply:
            return await usecases.search(app, SearchQuery(query), source="project", limit=10)

        return await rates(search, own, sets)


async def _documents(place: Place, root: Path, sets: Mapping[str, Judged]) -> dict[str, Any]:
    async with Services.open(place.env, root, root) as app, Workspace(app) as workspace:
        await workspace.update(await workspace.writer())

        async def search(query: str) -> SearchReply:
            return await workspace.search(SearchQuery(query, limit=10))

        return await rates(search, "documents", sets)


def _place(name: str) -> Place:
    folder = Path(tempfile.mkdtemp(prefix=f"kiwi-bench-{name}-"))
    return Place.below(folder, shared_cache=True)


def main() -> None:
    """Measure on the shared items, on fitz-gov, and on the documents of the tests."""
    names = dict.fromkeys(name for line in NONSENSE.splitlines() for name in line.split("|"))
    sets: dict[str, Judged] = {
        "items": judged(QUERIES), "fitz-gov": fitz(),
        "documents": judged(ROOT / "tests/data/workspace-queries.jsonl"), "nonsense": dict.fromkeys(names, ()),
    }  # fmt: skip
    places: Sequence[Place] = [_place("items"), _place("fitz")]
    places[0].copy_in(CORPUS)
    fitz_gov.write_documents(places[1].project, fitz_gov.documents_and_queries()[0], titled=True)
    try:
        for place in places:
            index(place)
        root = places[0].project.with_name("workspace")
        shutil.copytree(ROOT / "tests/data/workspace", root)
        measured = {
            "floors": {"items": ItemChoice.floor, "documents": PassageChoice.floor},
            "items": asyncio.run(_items(places[0], "items", sets)),
            "fitz-gov": asyncio.run(_items(places[1], "fitz-gov", sets)),
            "documents": asyncio.run(_documents(places[0], root, sets)),
        }
        print(json.dumps(measured, indent=2))
    finally:
        for place in places:
            shutil.rmtree(place.project.parent, ignore_errors=True)


if __name__ == "__main__":
    main()
