"""Clients that take for ever, that come in numbers, or whose requests two programs would read differently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers
from uvicorn.server import ServerState

from kiwi_rag.http import limits
from kiwi_rag.http.access import AccessControl, Logins, Role, TokenFile

PATIENCE = 60.0
MOMENT = 0.2
WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
HALF = b"GET / HTTP/1.1\r\nHost: a\r\nX: "
SLOW_BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nhalf"
WORK = b"GET /work HTTP/1.1\r\nHost: a\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"
REFUSED = b"POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n"


@dataclass
class Application:
    """Answers a request after its body; `/work` when it is released, `/refused` at once, `/large` with 50 MB."""

    released: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun += 1
        message = {"type": "http.request", "more_body": scope["path"] != "/refused"}
        while message.get("more_body"):
            message = await receive()
        if scope["path"] == "/work":
            await self.released.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        size = 50_000_000 if scope["path"] == "/large" else 2
        await send({"type": "http.response.body", "body": b"x" * size})


@dataclass
class Running:
    """A server on a port and on a Unix socket."""

    application: Application
    connections: set[Any]
    port: int
    path: Path
    stack: AsyncExitStack

    async def connect(self, sent: bytes = b"", *, local: bool = False) -> Line:
        opened = asyncio.open_unix_connection(self.path) if local else asyncio.open_connection("127.0.0.1", self.port)
        line = Line(*await opened)
        self.stack.callback(line.writer.close)
        line.writer.write(sent)
        return line

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.01)


@dataclass
class Line:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def status(self) -> int:
        """The status of the next answer, 0 when there is none; its body is read."""
        try:
            head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE)
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        if b"content-length: 2\r\n" in head:
            await self.reader.readexactly(2)
        return int(head.split()[1])

    async def seconds_open(self) -> float:
        """How long the server lets it be open from now on."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(PATIENCE):
                while await self.reader.read(1 << 20):
                    pass
        except ConnectionError:
            pass
        return loop.time() - began


def named(scope: Any) -> str:
    """The valid tokens are one, one-other and two."""
    token = Headers(scope=scope).get("authorization", "").removeprefix("Bearer ")
    return token if token in ("one", "one-other", "two") else ""


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Running]:
    application = Application()
    config = limits.uvicorn_config(application, named)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()

    def connection() -> limits.LimitedConnection:
        return limits.LimitedConnection(config, state, {}, identify=named)

    async with (
        AsyncExitStack() as stack,
        await loop.create_server(connection, "127.0.0.1", 0) as port,
        await loop.create_unix_server(connection, path),
    ):
        yield Running(application, state.connections, port.sockets[0].getsockname()[1], path, stack)
        application.released.set()
        for one in state.connections:
            one.transport.abort()


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    for name in limits.WAIT_SECONDS:
        monkeypatch.setitem(limits.WAIT_SECONDS, name, PATIENCE * 2)
    monkeypatch.setattr(limits, "PORT_CONNECTIONS", 6)
    monkeypatch.setattr(limits, "CLIENT_CONNECTIONS", 6)
    monkeypatch.setattr(limits, "SPARE_CONNECTIONS", 2)
    monkeypatch.setattr(limits, "SOCKET_CONNECTIONS", 2)
    async with serving(tmp_path / "s") as server:
        yield server


@pytest.mark.parametrize(
    ("waits_for", "first", "then"),
    [
        ("head", b"", b""), ("head", b"", b"POST / HTTP/1.1\r\nX: "), ("head", b"", b"\r\n"),
        ("head", WHOLE, HALF), ("head", WHOLE * 3, HALF), ("head", WHOLE, b"\r\n"), ("head", WHOLE, b"G"),
        ("head", REFUSED, b"x" * 1000), ("body", b"", SLOW_BODY), ("body", WHOLE, SLOW_BODY),
        ("body", WHOLE, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n"),
        ("next request", WHOLE, b""), ("next request", WHOLE * 3, b""), ("reading", b"", LARGE),
    ],
)  # fmt: skip
async def test_no_wait_for_a_client_is_without_end(
    running: Running, monkeypatch: pytest.MonkeyPatch, waits_for: str, first: bytes, then: bytes
) -> None:
    monkeypatch.setitem(limits.WAIT_SECONDS, waits_for, MOMENT)
    line = await running.connect(first)
    for _ in range(first.count(b"HTTP/1.1")):
        assert await line.status() == 200
    line.writer.write(then)
    if waits_for == "reading":
        line.reader._transport.pause_reading()
        await running.until(lambda: running.application.begun)
    await running.until(lambda: not running.connections)
    if waits_for != "reading":
        assert await line.seconds_open() < PATIENCE


async def test_a_byte_now_and_then_is_no_more_time(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    for waits_for, sent in (("head", HALF), ("body", SLOW_BODY)):
        monkeypatch.setitem(limits.WAIT_SECONDS, waits_for, MOMENT)
        line = await running.connect(WHOLE)
        assert await line.status() == 200
        line.writer.write(sent)
        for _ in range(40):
            await asyncio.sleep(MOMENT / 10)
            line.writer.write(b"x")
            if line.reader.at_eof() or line.writer.is_closing():
                break
        else:
            pytest.fail(f"{waits_for}: the connection is still open")


async def test_work_and_an_agents_session_have_no_time_limit(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    for waits_for in limits.WAIT_SECONDS:
        monkeypatch.setitem(limits.WAIT_SECONDS, waits_for, MOMENT)
    work, session = await running.connect(WORK), await running.connect(SLOW_BODY, local=True)
    await running.until(lambda: running.application.begun == 2)
    await asyncio.sleep(MOMENT * 2)
    running.application.released.set()
    session.writer.write(b"x" * 46)
    assert (await work.status(), await session.status()) == (200, 200)


@pytest.mark.parametrize("kept", [b"", HALF, WHOLE, WHOLE + HALF, SLOW_BODY, REFUSED, LARGE])
async def test_clients_that_are_waited_for_leave_their_places_to_others(running: Running, kept: bytes) -> None:
    """510 connections that sent a whole request and half of a head took all places."""
    for _ in range(20):
        await running.connect(kept)
    for _ in range(3):
        assert await (await running.connect(WHOLE)).status() == 200
    assert len(running.connections) <= limits.PORT_CONNECTIONS + limits.SPARE_CONNECTIONS + 1


async def test_the_one_that_is_waited_for_the_longest_goes_first(running: Running) -> None:
    idle = await running.connect(WHOLE)
    assert await idle.status() == 200
    half = [await running.connect(HALF) for _ in range(5)]
    await running.until(lambda: len(running.connections) == 6)
    assert await (await running.connect(WHOLE)).status() == 200
    assert await idle.seconds_open() < PATIENCE
    for line in half:
        line.writer.write(b"\r\n\r\n")
        assert await line.status() == 200


async def test_places_of_the_port_are_not_those_of_the_socket(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All places are working: the port refuses one more, the ``kiwi`` command is answered."""
    for _ in range(6):
        await running.connect(WORK)
    await running.until(lambda: running.application.begun == 6)
    for sent, spare in ((WHOLE, 2), (WHOLE, 2), (b"", 0)):  # the last one is refused before it asks
        monkeypatch.setattr(limits, "SPARE_CONNECTIONS", spare)
        refused = await running.connect(sent)
        head = await asyncio.wait_for(refused.reader.read(1000), PATIENCE)
        assert head.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in head.lower()
    assert await (await running.connect(WHOLE, local=True)).status() == 200
    for _ in range(2):
        await running.connect(WORK, local=True)
    await running.until(lambda: running.application.begun == 9)
    assert await (await running.connect(WHOLE, local=True)).status() == 503


async def test_one_client_does_not_take_all_places(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_CONNECTIONS", 3)
    head = b" HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer one"
    for _ in range(3):
        await running.connect(b"GET /work" + head + b"\r\n\r\n")
    await running.until(lambda: running.application.begun == 3)
    one_more = await running.connect(b"GET /" + head + b"\r\n\r\n")
    answer = await asyncio.wait_for(one_more.reader.read(2000), PATIENCE)
    assert answer.startswith(b"HTTP/1.1 429") and b"retry-after: 1" in answer and b'"busy"' in answer
    assert await (await running.connect(b"GET /" + head + b"-other\r\n\r\n")).status() == 200
    assert await (await running.connect(WHOLE)).status() == 200


@pytest.mark.parametrize(
    "sent", [b"Authorization: Bearer one\r\nCookie: kiwi=%d", b"Authorization: Bearer x%d", b"Cookie: kiwi=%d"]
)
async def test_headers_that_are_not_valid_make_no_further_clients(
    running: Running, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """One token with another cookie each time took all 500 places."""
    monkeypatch.setattr(limits, "CLIENT_CONNECTIONS", 3)
    head = b" HTTP/1.1\r\nHost: a\r\n" + sent + b"\r\n\r\n"
    for number in range(3):
        await running.connect(b"GET /work" + head % number)
    await running.until(lambda: running.application.begun == 3)
    assert await (await running.connect(b"GET /" + head % 3)).status() == 429
    other = b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer two\r\n\r\n"
    assert await (await running.connect(other)).status() == 200


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("127.0.0.1", "127.0.0.2", True), ("127.0.0.1", "::1", True), ("::ffff:127.0.0.3", "127.0.0.1", True),
        ("192.0.2.1", "192.0.2.2", False), ("192.0.2.1", "127.0.0.1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
    ],
)  # fmt: skip
def test_all_addresses_of_this_machine_are_one_client(first: str, second: str, same: bool) -> None:
    one, other = ({"client": (address, 1)} for address in (first, second))
    assert (limits.client_of(one, "") == limits.client_of(other, "")) is same
    assert limits.client_of(one, "ada") == limits.client_of(other, "ada") != limits.client_of(one, "")
    assert limits.client_of(one, second) != limits.client_of(other, "")


def test_only_a_valid_token_or_cookie_names_a_client(tmp_path: Path) -> None:
    tokens, logins = TokenFile(tmp_path / "tokens.json"), Logins()
    control = AccessControl(Application(), tokens, logins)
    token, cookies = tokens.add("ada", Role.READER), [logins.complete(logins.begin()) for _ in range(2)]

    def name(**headers: str) -> str:
        sent = [(key.encode(), value.encode()) for key, value in headers.items()]
        return control.identify({"type": "http", "headers": sent})

    assert name(authorization=f"Bearer {token}", cookie="kiwi=junk") == "ada"
    named = {name(cookie=f"other=x; kiwi={cookie}") for cookie in cookies}
    assert len(named) == 2 and "" not in named
    assert name() == name(authorization="Bearer junk") == name(cookie="kiwi=junk") == ""


async def test_a_clients_own_idle_connection_is_closed_for_its_next(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLIENT_CONNECTIONS", 3)
    lines = [await running.connect(WHOLE) for _ in range(4)]
    assert [await line.status() for line in lines] == [200] * 4
    assert await lines[0].seconds_open() < PATIENCE
    await running.until(lambda: len(running.connections) == 3)


POST = b"POST / HTTP/1.1\r\nHost: a\r\n"


TWO_WAYS = (
    POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + WHOLE,
    POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    POST + b"Content-Length: 5, 6\r\n\r\nhello!",
    POST + b"Content-Length: +5\r\n\r\nhello",
    POST + b"Content-Length: 0x5\r\n\r\nhello",
    POST + b"Content-Length: -5\r\n\r\nhello",
    POST + b"Content-Length:\r\n\r\n",
    POST + b"Content-Length : 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\n Content-Length: 5\r\nHost: a\r\n\r\nhello",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rContent-Length: 5\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0\r\n\r\n",
    b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 70_000,
)


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("first", [b"", WHOLE])
async def test_a_request_that_can_be_read_in_two_ways_is_refused(running: Running, first: bytes, local: bool) -> None:
    for sent in TWO_WAYS:
        line = await running.connect(first, local=local)
        if first:
            assert await line.status() == 200
        begun = running.application.begun
        line.writer.write(sent)
        assert await line.status() in (400, 501), sent
        await running.until(lambda: not running.connections)
        assert running.application.begun == begun, sent


async def test_a_folded_line_is_a_part_of_the_header_before(running: Running) -> None:
    line = await running.connect(b"POST / HTTP/1.1\r\nHost: a\r\nX: a\r\n Content-Length: 5\r\n\r\n" + WHOLE)
    assert (await line.status(), await line.status()) == (200, 200)


@pytest.mark.parametrize("bad", [b"x\r\n", b"5\r\nwhole5\r\n", b"-1\r\n", b"0\r\nX\r\n\r\n"])
async def test_a_chunk_that_is_none_ends_the_request(running: Running, bad: bytes) -> None:
    line = await running.connect(POST + b"Transfer-Encoding: chunked\r\n\r\n" + bad)
    assert await line.status() == 400
    await running.until(lambda: not running.connections)
