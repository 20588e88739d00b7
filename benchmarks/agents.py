"""Agents' ways in: `initialize`, commands through the local service, searches over HTTP by one client and by 50.

Run: ``python -m benchmarks.agents [clients] [searches]``. Prints one JSON object; times in milliseconds, memory in MB.
Clients are the official SDK's, in a process beside the server's; both share the machine's cores: the clients take about
a quarter of the processor time, 5 ms a search. Each search asks what was never asked before, so that the model works
for each, and is followed by the next at once. The server's memory is read after every tenth part of the fifty clients'
searches.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from mcp import Client

from benchmarks.place import KIWI, Place
from benchmarks.timing import percentiles, spread, timed
from tests.shared import ROOT

STARTS = 10
SEARCHES = 30
ENTRY = (sys.executable, "-m", "kiwi_rag.entry")
"""What the installed `kiwi` runs; `python -m kiwi_rag.cli` imports the whole command line before it."""
BARE = [sys.executable, "-c", "pass"]
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


@contextmanager
def serving(place: Place) -> Iterator[tuple[str, int]]:
    """Yield a server's URL and process id."""
    command = [*KIWI, "mcp", "--http", "--port", "0"]
    process = subprocess.Popen(command, env=dict(place.env), cwd=place.project, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = re.search(r"http://\S+/mcp", process.stderr.readline())
        assert found
        yield found[0], process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


def until_greeted(place: Place) -> float:
    """The time from starting `kiwi mcp` to its answer to `initialize`, in ms."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [*KIWI, "mcp"], env=dict(place.env), cwd=place.project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(_INITIALIZE) + "\n")
    process.stdin.flush()
    assert "serverInfo" in json.loads(process.stdout.readline())["result"]
    taken = (time.perf_counter() - begun) * 1000
    process.communicate()
    return taken


def _run(command: list[str], env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, env=dict(env), cwd=cwd, capture_output=True, check=False)


def through_the_service(place: Place, folder: Path) -> dict[str, Any]:
    """The time of whole processes that a service answers, each of what was never asked, in ms, and of a bare Python."""
    place.run("workspace", "index", ".", accept=(0, 3))
    (folder / "run").mkdir(mode=0o700)
    env = {**place.env, "XDG_RUNTIME_DIR": str(folder / "run")}
    service = subprocess.Popen([*KIWI, "serve"], env=env, cwd=place.project, stderr=subprocess.PIPE, text=True)
    try:
        assert service.stderr is not None
        assert "serving at" in service.stderr.readline()
        commands = {"search": ("search",), "workspace search": ("workspace", "search"), "bare": ()}
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(SEARCHES + 5):
            for name, words in commands.items():
                asked = [*ENTRY, "--verbose", *words, f"undo the deploy of shop {number}"] if words else BARE
                seconds, done = timed(partial(_run, asked, env, place.project))
                assert done.returncode == 0 and b"not used" not in done.stderr, done.stderr
                taken[name].append(seconds * 1000)
    finally:
        service.terminate()
        service.wait(timeout=30)
    found: dict[str, Any] = {}
    for name, times in taken.items():
        found[name] = {**spread(times[5:], 0), **percentiles(times[5:], 0)}
        if name != "bare":
            pairs = zip(times[5:], taken["bare"][5:], strict=True)
            found[f"{name} to bare"] = spread([one / bare for one, bare in pairs], 1)
    return found


async def clients(url: str, pid: int, number: int, searches: int, asked: Iterator[int]) -> dict[str, Any]:
    """Let clients search, each one search after the other; return percentiles, errors, rate and memory."""
    taken: list[float] = []
    errors: list[str] = []
    memory = [resident(pid)]
    total = number * searches

    async def search(client: Client) -> None:
        begun = time.perf_counter()
        answer = await client.call_tool("kiwi_search", {"query": f"undo the deploy of service {next(asked)}"})
        taken.append((time.perf_counter() - begun) * 1000)
        if answer.is_error or not (answer.structured_content or {}).get("hits"):
            errors.append(str(answer.content)[:200])
        if len(taken) % max(total // 10, 1) == 0:
            memory.append(resident(pid))

    async def one() -> None:
        async with Client(url, read_timeout_seconds=120) as client:
            for _ in range(searches):
                await search(client)

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(number)))
    rate = total / (time.perf_counter() - begun)
    told = {"searches": total, **percentiles(taken), "a_second": round(rate, 1), "errors": len(errors)}
    return {**told, "first_errors": errors[:3], "memory_mb": memory}


def resident(pid: int) -> float:
    """The memory that a process holds, in MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return round(int(found[1]) / 1024, 1)


def measure(number: int, searches: int) -> dict[str, Any]:
    """Measure starts, one client, and all clients."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        place = Place.below(Path(folder))
        place.copy_in(ROOT / "examples/acme/.ai")
        place.run("sign", ".ai")
        place.run("index")
        starts = [until_greeted(place) for _ in range(STARTS + 1)][1:]
        through = through_the_service(place, Path(folder))
        asked = count()
        with serving(place) as (url, pid):
            asyncio.run(clients(url, pid, 1, 20, asked))
            alone = asyncio.run(clients(url, pid, 1, searches, asked))
            many = asyncio.run(clients(url, pid, number, searches, asked))
    return {
        "initialize_ms": spread(starts, 0),
        "through_service_ms": through,
        "one_client": alone,
        f"{number}_clients": many,
    }


if __name__ == "__main__":
    json.dump(measure(*(int(a) for a in (*sys.argv[1:], *("50", "200")[len(sys.argv) - 1 :]))), sys.stdout, indent=1)
    sys.stdout.write("\n")
