"""The servers under clients that come in numbers, take for ever or start sessions without end.

Run: ``python -m benchmarks.soak_servers``. Prints a list of rows as JSON: ``name``, ``tried``, ``failed`` (empty
where the server held), ``seconds``, and ``memory_mb`` of the server after it. Takes about three minutes. Everything is
tried with a real ``kiwi serve``, the floods also with ``kiwi mcp --http``. A server holds if it meanwhile answers
another client and the ``kiwi`` command, and if it ends what it has to wait for.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.place import KIWI, Place
from benchmarks.timing import timed
from benchmarks.web import serving
from kiwi_rag.http.limits import WAIT_SECONDS
from tests.interfaces.test_mcp_http import INITIALIZE
from tests.shared import ROOT

FLOOD = 510
"""Connections, which are more than a server has places for."""
AT_ONCE = 200
SESSIONS = 2_000
GROWTH_MB = 40
SLACK_SECONDS = 10.0
"""How much later than its time limit a connection may end."""
WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "
QUERY = {"query": "undo a bad release"}
_ACCEPT = {"Accept": "application/json, text/event-stream"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A running server: where it listens, its process, and the token of a client; `kiwi` fails if it has no answer."""

    name: str
    url: str
    pid: int
    token: str
    kiwi: Callable[[], object]

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=60)

    def connect(self, *sent: bytes) -> socket.socket:
        """Open a connection; between two things that it sends it waits for the answer to the first."""
        line = socket.create_connection((urlsplit(self.url).hostname, urlsplit(self.url).port), timeout=60)
        for number, data in enumerate(sent):
            if number:
                line.recv(4096)
            line.sendall(data)
        return line

    def memory_mb(self) -> float | None:
        """The memory of the process now; None where there is no ``/proc``."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        except OSError:
            return None
        return round(int(status.partition("VmRSS:")[2].split()[0]) / 1024, 1)

    def slow_body(self, path: str = "/mcp") -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n{{".encode()

    def row(self, name: str, tried: str, attempt: Callable[[], str]) -> Row:
        """Try it; an empty text means that the server held."""

        def outcome() -> str:
            try:
                return attempt()
            except (OSError, httpx.HTTPError, subprocess.SubprocessError) as error:
                return f"{type(error).__name__}: {error}"

        seconds, found = timed(outcome)
        about = {"name": f"{self.name}: {name}", "tried": tried, "failed": found}
        return {**about, "seconds": round(seconds, 1), "memory_mb": self.memory_mb()}


def rows() -> list[Row]:
    """Try everything; return a row for each."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        place = Place.below(Path(folder))
        place.copy_in(ROOT / "examples/acme/.ai")
        place.run("sign", ".ai")
        place.run("index")
        with _service(place, Path(folder)) as service, ThreadPoolExecutor(1) as pool:
            found = [*_floods(service), _at_once(service), _one_client(service)]
            waits = pool.submit(_waits, service)  # meanwhile nothing makes its places scarce
            found.append(_sessions(service))
            with _agents_server(place) as agents:
                found += [*_floods(agents), _sessions(agents)]
            return [*found, *waits.result()]


@contextmanager
def _service(place: Place, folder: Path) -> Iterator[Target]:
    with serving(place, folder) as env:

        def kiwi(*words: str) -> str:
            options: Any = {"env": dict(env), "cwd": place.project, "text": True, "timeout": 30}
            return subprocess.check_output([*KIWI, *words], **options)

        def command() -> None:
            before = _state(kiwi)["requests"]
            kiwi("search", QUERY["query"])
            if _state(kiwi)["requests"] <= before:
                raise OSError("the command had no answer from the service")

        token = kiwi("serve", "token", "new", "soak", "--role", "admin").strip()
        state = _state(kiwi)
        yield Target("kiwi serve", state["url"], state["pid"], token, command)


def _state(kiwi: Callable[..., str]) -> Mapping[str, Any]:
    state: Mapping[str, Any] = json.loads(kiwi("--json", "status"))["service"]
    if state["state"] != "running":
        raise OSError(f"the service is {state['state']}")
    return state


@contextmanager
def _agents_server(place: Place) -> Iterator[Target]:
    command = [*KIWI, "mcp", "--http", "--port", "0"]
    with subprocess.Popen(
        command, env=dict(place.env), cwd=place.project, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"(http://\S+)/mcp", process.stderr.readline())
            assert found is not None
            yield Target("kiwi mcp --http", found[1], process.pid, "none", lambda: None)
        finally:
            process.terminate()


def _floods(target: Target) -> list[Row]:
    kinds: Mapping[str, Sequence[bytes]] = {
        "silent": [b""], "half of a head": [HALF], "idle after an answer": [WHOLE, b""],
        "half of a second head": [WHOLE, HALF], "half of a body": [target.slow_body()],
    }  # fmt: skip
    return [
        target.row(name, f"{FLOOD} connections", lambda sent=sent: _flood(target, sent))  # type: ignore[misc]
        for name, sent in kinds.items()
    ]


def _flood(target: Target, sent: Sequence[bytes]) -> str:
    with ExitStack() as stack:
        for _ in range(FLOOD):
            stack.enter_context(target.connect(*sent))
        problems = [_initialize(target), _second(target)]
        target.kiwi()
    return "; ".join(filter(None, problems))


def _second(target: Target) -> str:
    """Ask as another client, which has a connection of its own."""
    status = httpx.get(f"{target.url}/health", timeout=60).status_code
    return "" if status in (200, 404) else f"another client had {status}"


def _initialize(target: Target) -> str:
    status = httpx.post(f"{target.url}/mcp", json=INITIALIZE, headers=_headers(target), timeout=60).status_code
    return "" if status == 200 else f"initialize had {status}"


def _headers(target: Target) -> Mapping[str, str]:
    return {**_ACCEPT, "Authorization": f"Bearer {target.token}"}


def _at_once(target: Target) -> Row:
    def attempt() -> str:
        statuses = _statuses(target, AT_ONCE)
        return "" if statuses == {200: AT_ONCE} else f"answers: {statuses}"

    return target.row("searches at once", f"{AT_ONCE} connections", attempt)


def _one_client(target: Target) -> Row:
    """One client has more requests at once than the server has places: the others are answered."""

    def attempt() -> str:
        statuses = _statuses(target, FLOOD, between=lambda: (_second(target), target.kiwi()))
        return "" if statuses.keys() <= {200, 429, 503} else f"answers: {statuses}"

    return target.row("one client with one token", f"{FLOOD} searches at once", attempt)


def _statuses(target: Target, count: int, between: Callable[[], object] = lambda: None) -> dict[int, int]:
    """Send so many searches at once; return how often each status was the answer."""
    head = "GET /api/v1/search?query=undo+a+bad+release HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    request = f"{head}Authorization: Bearer {target.token}\r\n\r\n".encode()
    statuses: dict[int, int] = {}
    with ExitStack() as stack:
        lines = [stack.enter_context(target.connect(request)) for _ in range(count)]
        between()
        for line in lines:
            status = int((line.recv(100) or b"_ 0").split()[1])
            statuses[status] = statuses.get(status, 0) + 1
    return statuses


def _sessions(target: Target) -> Row:
    def attempt() -> str:
        before = target.memory_mb()
        with target.client() as client:
            answers = [client.post("/mcp", json=INITIALIZE, headers=_ACCEPT) for _ in range(SESSIONS)]
            ids = [answer.headers.get("mcp-session-id", "") for answer in answers]
            listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            first, last = (
                client.post("/mcp", json=listing, headers={**_ACCEPT, "Mcp-Session-Id": one}).status_code
                for one in (ids[0], ids[-1])
            )
        problems = [] if (first, last) == (404, 200) else [f"the first session had {first}, the last one {last}"]
        after = target.memory_mb()
        if before and after and after - before > GROWTH_MB:
            problems.append(f"{after - before:.0f} MB more")
        return "; ".join(problems)

    return target.row("sessions", f"{SESSIONS:,} calls of initialize", attempt)


def _waits(target: Target) -> list[Row]:
    """Wait for the end of connections that send a byte each second, send or read nothing: a row for each limit."""
    large = f"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {target.token}\r\n\r\n"
    sent: Mapping[str, Sequence[bytes]] = {
        "head": [WHOLE, HALF], "body": [target.slow_body("/api/v1/search")], "next request": [WHOLE, b""],
        "reading": [large.encode() * 200],
    }  # fmt: skip
    with ExitStack() as stack:
        lines = {name: stack.enter_context(target.connect(*parts)) for name, parts in sent.items()}
        began = time.monotonic()
        ended = dict(_ends(lines, began))
        found = []
        for name, seconds in ended.items():
            late = seconds > WAIT_SECONDS[name] + SLACK_SECONDS
            row = target.row(f"slow {name}", "a connection", lambda late=late: "it ended too late" if late else "")
            found.append({**row, "seconds": round(seconds, 1)})
        return found


def _ends(lines: Mapping[str, socket.socket], began: float) -> Iterator[tuple[str, float]]:
    """Yield each connection with the seconds after which the server ended it."""
    left = dict(lines)
    while left:
        time.sleep(1)
        for name, line in list(left.items()):
            seconds = time.monotonic() - began
            if _has_ended(line, name) or seconds > 2 * WAIT_SECONDS[name]:
                del left[name]
                yield name, seconds


def _has_ended(line: socket.socket, waits_for: str) -> bool:
    line.setblocking(False)
    try:
        line.sendall(b"" if waits_for == "next request" else b"x")
        while waits_for != "reading" and line.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return waits_for != "reading"


if __name__ == "__main__":
    json.dump(rows(), sys.stdout, indent=1)
    sys.stdout.write("\n")
