"""The web interface: how long each page takes, in the service and until Chromium paints it, and how many bytes it is.

Run: ``python -m benchmarks.web``. Prints one JSON object; times in milliseconds. ``search_as_you_type_ms`` is of
requests for the part of the page with the hits, each with a query that was never asked. First paints are those that
Chromium reports itself, of pages whose files it has loaded before; without Playwright and Chromium they are left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.place import KIWI, Place
from benchmarks.timing import percentiles, spread, timed
from tests.browser import chromium
from tests.shared import ROOT

PAGES = ("/", "/search?q=undo+a+bad+release", "/add", "/indexing", "/sources", "/registry", "/stores", "/settings")
ROUNDS = 10
QUERIES = 30
_PART = {"HX-Request": "true", "HX-Request-Type": "partial"}
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


@contextmanager
def serving(place: Place, folder: Path) -> Iterator[Mapping[str, str]]:
    """Run a service; yield the environment in which commands use it."""
    (folder / "run").mkdir(mode=0o700)
    env = {**place.env, "XDG_RUNTIME_DIR": str(folder / "run"), "KIWI_PORT": "0"}
    service = subprocess.Popen([*KIWI, "serve"], env=env, cwd=place.project, stderr=subprocess.PIPE, text=True)
    try:
        assert service.stderr is not None
        assert "serving at" in service.stderr.readline()
        yield env
    finally:
        service.terminate()
        service.wait(timeout=30)


def sign_in(place: Place, env: Mapping[str, str]) -> str:
    """Return an address that signs a browser in."""
    command = [*KIWI, "ui", "--no-browser"]
    return subprocess.check_output(command, env=dict(env), cwd=place.project, text=True).strip()


def requested(address: str) -> dict[str, Any]:
    """Return the times and sizes of pages and files as a client without a browser gets them."""
    with httpx.Client(follow_redirects=True, timeout=60) as client:
        base = str(client.get(address).url).rstrip("/")
        times = {path: [_milliseconds(client, base + path) for _ in range(ROUNDS)] for path in PAGES}
        typed = [_milliseconds(client, f"{base}/search?q=undo+the+deploy+of+shop+{n}", _PART) for n in range(QUERIES)]
        files = sorted({file for path in PAGES for file in _files(client.get(base + path).text)})
        sizes = {path: _wire_bytes(client, base + path) for path in (*PAGES, *files)}
    return {
        "page_ms": {path: spread(found[1:], 1) for path, found in times.items()},
        "search_as_you_type_ms": percentiles(typed[1:], 1),
        "bytes": sizes,
        "bytes_of_all": sum(sizes.values()),
    }


def _milliseconds(client: httpx.Client, url: str, headers: Mapping[str, str] | None = None) -> float:
    seconds, answer = timed(lambda: client.get(url, headers=headers))
    answer.raise_for_status()
    return seconds * 1000


def _files(page: str) -> list[str]:
    """Return the addresses of the files that a page loads."""
    return re.findall(r'(?:src|href)="(/static/[^"]+)"', page)


def _wire_bytes(client: httpx.Client, url: str) -> int:
    with client.stream("GET", url) as response:
        return sum(map(len, response.iter_raw()))


def painted(address: str) -> dict[str, Any]:
    """Return the first paint of each page in Chromium."""
    if why := chromium.why_missing():
        return {"skipped": why}
    with chromium.launched() as browser:
        page = chromium.new_context(browser).new_page()
        page.goto(address)
        base = page.url.rstrip("/")
        paints: dict[str, list[float]] = {path: [] for path in PAGES}
        for _ in range(ROUNDS + 1):
            for path, found in paints.items():
                page.goto(base + path)
                while (paint := page.evaluate(_PAINT)) is None:
                    page.wait_for_timeout(20)
                found.append(paint)
        return {path: spread(found[1:], 1) for path, found in paints.items()}


def measure() -> dict[str, Any]:
    """Measure everything over the example items and some documents."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        place = Place.below(Path(folder))
        place.copy_in(ROOT / "examples/acme/.ai")
        place.run("sign", ".ai")
        place.run("index")
        place.run("workspace", "index", ".", accept=(0, 3))
        with serving(place, Path(folder)) as env:
            found = requested(sign_in(place, env))
            return {**found, "first_paint_ms": painted(sign_in(place, env))}


if __name__ == "__main__":
    json.dump(measure(), sys.stdout, indent=1)
    sys.stdout.write("\n")
