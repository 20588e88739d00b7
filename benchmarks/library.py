"""The documentation of a large framework as a library: how soon it answers, and what each store makes of it.

Run: ``python -m benchmarks.library [queries]``. Prints one JSON object. The documentation is that in an npm package,
475 pages of Markdown with 3.4 MB, fetched once. ``command`` is `benchmarks.documents` over it: when words find 95% of
the pages, and the whole run beside encoding the same passages. ``stores`` then has the same library in each store, with
all passages encoded before: seconds of indexing without encoding, size on the disk, and the time of a search and of
reading 5,000 tokens, in turns over the titles of the pages. Qdrant and Weaviate are measured where
``KIWI_TEST_QDRANT_URL`` and ``KIWI_TEST_WEAVIATE_URL`` name servers: qdrant-client's local mode goes through all
passages in Python for each document that it stores.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.documents import measure
from benchmarks.place import MODELS_OF, Place
from benchmarks.timing import named_percentiles, taken, timed
from kiwi_rag.model import SearchQuery
from kiwi_rag.services import Services
from kiwi_rag.services.documents import DocumentIndex
from kiwi_rag.services.library import Libraries
from kiwi_rag.sources.library.archive import download, unpack
from kiwi_rag.sources.library.package import parse_origin
from kiwi_rag.sources.library.record import Library
from kiwi_rag.sources.library.versions import Resolution
from kiwi_rag.usecases.items import list_documents
from kiwi_rag.usecases.library import Addition, get_docs

PACKAGE = "npm:next@16.4.6"
QUERIES = 200


def fetched() -> Path:
    """Return the folder of the documentation, which is fetched at the first run."""
    folder = MODELS_OF / "trees" / "library-next"
    if not folder.is_dir():
        parts = parse_origin(PACKAGE)
        with download(*parts, allow=lambda *_: None, progress=lambda _: lambda _: None) as (package, archive):
            unpack(package, Library("/vercel/next.js", parts[2], "", (), package.origin, folder), archive)
    return folder


def stores() -> dict[str, dict[str, str]]:
    """Return the stores to measure, each with its settings: servers only where there are some."""
    found: dict[str, dict[str, str]] = {"local": {}, "registry": {}}
    for name in ("qdrant", "weaviate"):
        if url := os.environ.get(f"KIWI_TEST_{name.upper()}_URL"):
            found[name] = {f"KIWI_{name.upper()}_URL": url}
    return found


async def one_store(
    place: Place, folder: Path, store: str, settings: dict[str, str], count: int, owner: str = "vercel"
) -> dict[str, Any]:
    """Index the library into one store, and search and read it."""
    env = {**place.env, **settings, "KIWI_WORKSPACE_STORE": store}
    opened = AsyncExitStack()
    async with opened:
        app = await opened.enter_async_context(Services.open(env, place.project))
        libraries = await opened.enter_async_context(Libraries(app))
        wanted = Addition(str(folder), place.project, f"/{owner}/next.js", PACKAGE.rpartition("@")[2], ("dist/docs",))
        library = wanted.save(libraries, lambda *_: None, lambda _: lambda _: None)[0]
        with libraries.scope(library) as index:
            before = _size(place, scratch=folder)
            started = asyncio.get_running_loop().time()
            report = await index.update(await index.writer())
            seconds = asyncio.get_running_loop().time() - started
            await index.embed_missing(await index.writer())
            titles = await _titles(index, count)
            searches = [await taken(index.search(SearchQuery(title))) for title in titles]
        read = [await taken(get_docs(app, libraries, Resolution(library), title)) for title in titles[: count // 4]]
        size = _size(place, scratch=folder) - before
        return {
            "seconds": round(seconds, 1), "passages_a_second": round(report.passages / seconds, 0),
            "mb": round(size / 1e6, 1), **named_percentiles("search", searches), **named_percentiles("read", read),
        }  # fmt: skip


async def _titles(index: DocumentIndex, count: int) -> list[str]:
    rows, _ = await list_documents(index.tier, SearchQuery("").filters)
    return [row["title"] for row in rows][:count]


def _size(place: Place, scratch: Path) -> int:
    root = place.project.parent
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and scratch not in path.parents)


def main() -> None:
    """Print the figures."""
    folder, count = fetched(), int(sys.argv[1]) if len(sys.argv) > 1 else QUERIES
    command = measure(folder / "dist/docs", 1, 1)
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as scratch:
        place, rows = Place.below(Path(scratch)), {}
        (key,) = json.loads(place.call("--json", "keys", "list")[1])
        may = ["--principal", key["principal"], "--type", "document", "--items", "*"]
        place.run("trust", "add", key["public_key"], *may)
        warm = timed(lambda: asyncio.run(one_store(place, folder, "local", {}, 4, "warm")))[0]
        for name, settings in stores().items():
            rows[name] = asyncio.run(one_store(place, folder, name, settings, count))
    print(
        json.dumps({"package": PACKAGE, "queries": count, "warm_s": round(warm, 1), "command": command, "stores": rows})
    )


if __name__ == "__main__":
    main()
