"""10,000 hostile searches of the local service over REST: none may fail in it, change it, or get no answer.

Run: ``python -m benchmarks.hostile_queries [queries]``. Prints a list of one row as JSON. Queries, filters and
numbers are made from a seed: those of the tests, every part of Unicode, very long ones. Each reply
has to be a result (200) or a refusal with a code (4xx), and an honest search has to find the same before and after.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

from benchmarks.place import Place
from benchmarks.registry_load import hostile_queries
from benchmarks.timing import percentiles, timed
from benchmarks.web import serving, sign_in
from tests.shared import ROOT

QUERIES = 10_000
HONEST = {"query": "undo a bad release", "limit": "5"}
PARTS = ("acme/deploy", "release", "undo", "{{7*7}}", "<script>alert(1)</script>", "../../etc/passwd", "a b " * 900)
VALUES = (
    "",
    "0",
    "-1",
    "51",
    "1e9",
    "NaN",
    "inf",
    "true",
    "[]",
    "../..",
    "'",
    "%",
    "\x00",
    "x" * 2_000,
    "all",
    "local",
    "script",
)
OPTIONS = (
    "limit",
    "alpha",
    "source",
    "item_type",
    "category",
    "author",
    "tag",
    "namespace",
    "signer",
    "since",
    "explain",
    "what",
)


def requests(count: int, seed: int = 20) -> Iterator[dict[str, str]]:
    """Yield the parameters of each search."""
    draw, parts = random.Random(seed), [*PARTS, *hostile_queries(200)]
    for _ in range(count):
        words = [
            draw.choice(parts) if draw.random() < 0.8 else chr(draw.randrange(1, 0xD800))
            for _ in range(draw.randint(1, 6))
        ]
        given = {"query": draw.choice(("", " ")).join(words)}
        for _ in range(draw.choice((0, 0, 1, 2))):
            given[draw.choice(OPTIONS)] = draw.choice(VALUES)
        yield given


def attack(client: httpx.Client, address: str, count: int) -> dict[str, Any]:
    """Send the searches; return how often each outcome occurred, and what should not have."""
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    milliseconds = []
    for given in requests(count):
        seconds, reply = timed(partial(client.get, f"{address}?{urlencode(given, errors='surrogatepass')}"))
        milliseconds.append(seconds * 1000)
        outcome = f"{reply.status_code} {'' if reply.is_success else _code(reply)}".strip()
        outcomes[outcome] += 1
        if reply.status_code >= 500 or "Traceback" in reply.text or outcome.endswith(" ?"):
            wrong.append(f"{outcome}: {given!r:.200}")
    failed = "; ".join(wrong[:3])
    return {"failed": failed, "outcomes": dict(outcomes.most_common()), "ms": percentiles(milliseconds, 1)}


def _code(reply: httpx.Response) -> str:
    try:
        return str(reply.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return "?"


def _found(reply: httpx.Response) -> list[tuple[str, float]]:
    return [(hit["item_id"], hit["score"]) for hit in reply.raise_for_status().json()["hits"]]


def measure(count: int) -> dict[str, Any]:
    """Serve the example items and attack their search."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        place = Place.below(Path(folder))
        place.copy_in(ROOT / "examples/acme/.ai")
        for command in (("sign", ".ai"), ("index",)):
            place.run(*command)
        with serving(place, Path(folder)) as env, httpx.Client(timeout=60) as client:
            page = client.get(sign_in(place, env), follow_redirects=True)
            address = f"{page.url.scheme}://{page.url.netloc.decode()}/api/v1/search"
            before = _found(client.get(address, params=HONEST))
            seconds, found = timed(lambda: attack(client, address, count))
            if before != _found(client.get(address, params=HONEST)):
                found["failed"] += "an honest search found something else afterwards"
    return {"name": "hostile searches over REST", "tried": count, "seconds": round(seconds, 1), **found}


def main() -> None:
    """Print the figures."""
    print(json.dumps([measure(int(sys.argv[1]) if len(sys.argv) > 1 else QUERIES)], indent=1))


if __name__ == "__main__":
    main()
