"""Agents' sessions: how many there are, which one ends for a new one, and what its client is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings

from kiwi_rag.http import sessions
from kiwi_rag.http.sessions import AgentSessions
from tests.interfaces.test_mcp_http import INITIALIZE

ACCEPT = {"Accept": "application/json, text/event-stream"}
CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
LIST = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}


@dataclass
class Caller:
    """A program with a token of its own."""

    http: httpx.AsyncClient

    async def post(self, message: Any, session: str = "", **headers: str) -> httpx.Response:
        sent = {"Mcp-Session-Id": session} if session else {}
        return await self.http.post("/mcp", json=message, headers={**ACCEPT, **sent, **headers})

    async def begin(self) -> str:
        answer = await self.post(INITIALIZE)
        assert answer.status_code == 200, answer.text
        return answer.headers["mcp-session-id"]

    async def open(self, *ids: str) -> list[bool]:
        """Whether each session is still there; this counts as a request."""
        return [(await self.post(LIST, one)).status_code == 200 for one in ids]


class Agents:
    """The application, with a tool that takes until it is released."""

    def __init__(self) -> None:
        self.released, self.waiting = asyncio.Event(), 0

        async def call_tool(_context: Any, _params: Any) -> types.CallToolResult:
            self.waiting += 1
            await self.released.wait()
            return types.CallToolResult(content=[])

        async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
            return types.ListToolsResult(tools=[])

        server: Server[Any] = Server("test", on_call_tool=call_tool, on_list_tools=list_tools)
        self.app = AgentSessions(server, TransportSecuritySettings(enable_dns_rebinding_protection=False))

    @property
    def open_in_sdk(self) -> int:
        (route,) = [one for one in self.app.app.routes if getattr(one, "path", "") == "/mcp"]
        return len(route.endpoint.session_manager._server_instances)

    def caller(self, name: str, address: str = "") -> Caller:
        async def named(scope: Any, receive: Any, send: Any) -> None:
            state = {} if address else {"caller": name}
            await self.app({**scope, "state": state, "client": (address, 1)}, receive, send)

        return Caller(httpx.AsyncClient(transport=httpx.ASGITransport(named), base_url="http://localhost"))

    @asynccontextmanager
    async def working(self, caller: Caller, *ids: str) -> AsyncIterator[None]:
        """Inside the block each session has a request that is not answered."""
        before = self.waiting
        calls = [asyncio.create_task(caller.post(CALL, one)) for one in ids]
        while self.waiting < before + len(ids):
            await asyncio.sleep(0.005)
        yield
        self.released.set()
        assert [answer.status_code for answer in await asyncio.gather(*calls)] == [200] * len(ids)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 4)
    monkeypatch.setattr(sessions, "MAX_OF_CALLER", 3)
    monkeypatch.setattr(sessions, "RESERVED", 0)


@asynccontextmanager
async def serving() -> AsyncIterator[Agents]:
    agents = Agents()
    async with agents.app.app.router.lifespan_context(agents.app.app):
        yield agents


async def test_initialize_again_and_again_keeps_no_more_sessions() -> None:
    """2,000 calls took 76 MB, and kept them."""
    async with serving() as agents:
        caller = agents.caller("one")
        for _ in range(20):
            last = await caller.begin()
        assert agents.open_in_sdk == len(agents.app._sessions) == 3
        assert await caller.open(last) == [True]


async def test_the_session_whose_last_request_is_the_oldest_ends() -> None:
    async with serving() as agents:
        caller = agents.caller("one")
        ids = [await caller.begin() for _ in range(3)]
        assert await caller.open(ids[0]) == [True]
        new = await caller.begin()
        assert await caller.open(*ids, new) == [True, False, True, True]
        ended = await caller.post(LIST, ids[1])
        assert ended.status_code == 404  # by which a client knows that it has to initialize again
        assert await caller.open(await caller.begin()) == [True]


async def test_a_caller_ends_its_own_sessions_before_those_of_others() -> None:
    async with serving() as agents:
        first, second = agents.caller("one"), agents.caller("two")
        kept = await second.begin()
        for _ in range(9):
            await first.begin()
        assert await second.open(kept) == [True]
        for _ in range(2):
            await agents.caller("three").begin()
        assert agents.open_in_sdk == 4


async def test_a_session_in_use_does_not_end() -> None:
    async with serving() as agents:
        caller, other = agents.caller("one"), agents.caller("two")
        ids = [await caller.begin() for _ in range(3)]
        async with agents.working(caller, *ids):
            refused = await caller.post(INITIALIZE)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert refused.json()["error"]["code"] == "busy"
            assert await other.open(await other.begin()) == [True]
            refused = await agents.caller("three").post(INITIALIZE)
            assert refused.status_code == 200, "the other caller's session is idle"
        assert await caller.open(*ids) == [True] * 3
        assert await caller.open(await caller.begin()) == [True]


async def test_addresses_of_this_machine_are_one_caller() -> None:
    """200 sessions in use of 127.0.0.2 and 127.0.0.3 left no place to 127.0.0.1."""
    async with serving() as agents:
        callers = [agents.caller("", f"127.0.0.{number}") for number in (1, 2, 3)]
        ids = [await one.begin() for one in callers]
        async with agents.working(callers[0], *ids):
            assert (await callers[1].post(INITIALIZE)).status_code == 503
            other = agents.caller("one")
            assert await other.open(await other.begin()) == [True]


async def test_a_place_is_left_for_a_caller_without_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "RESERVED", 1)
    async with serving() as agents:
        first, second = agents.caller("one"), agents.caller("two")
        ids = [await first.begin(), await first.begin()]
        async with agents.working(first, *ids), agents.working(second, await second.begin()):
            assert {(await one.post(INITIALIZE)).status_code for one in (first, second)} == {503}
            assert (await agents.caller("three").post(INITIALIZE)).status_code == 200


async def test_a_session_is_its_callers_own() -> None:
    async with serving() as agents:
        caller, other = agents.caller("one"), agents.caller("two")
        begun = await caller.begin()
        unknown, refused = await other.post(LIST, "never-begun"), await other.post(LIST, begun)
        assert (refused.status_code, refused.json()) == (404, unknown.json())
        assert (await other.http.delete("/mcp", headers={"Mcp-Session-Id": begun})).status_code == 404
        assert await caller.open(begun) == [True]


async def test_sessions_that_were_ended_or_never_begun_take_no_place() -> None:
    async with serving() as agents:
        caller = agents.caller("one")
        kept = await caller.begin()
        for _ in range(5):
            gone = await caller.begin()
            assert (await caller.http.delete("/mcp", headers={"Mcp-Session-Id": gone})).status_code == 200
            assert (await caller.post({"no": "message"})).status_code == 400
            assert (await caller.post(LIST)).status_code == 400
            assert (await caller.post(LIST, "never-begun")).status_code == 404
            assert (await caller.post(LIST, gone)).status_code == 404
            assert (await caller.http.get("/mcp", headers=ACCEPT)).status_code == 400
        assert len(agents.app._sessions) == agents.open_in_sdk == 1
        assert await caller.open(kept) == [True]


async def test_many_at_once_are_no_more_than_one_after_another() -> None:
    async with serving() as agents:
        caller = agents.caller("one")
        answers = await asyncio.gather(*(caller.post(INITIALIZE) for _ in range(20)))
        assert {answer.status_code for answer in answers} <= {200, 503}
        assert agents.open_in_sdk == len(agents.app._sessions) <= 3


async def test_bodies_that_do_not_end_begin_no_session() -> None:
    async with serving() as agents:
        caller, rest, begun = agents.caller("one"), asyncio.Event(), []

        async def slow() -> AsyncIterator[bytes]:
            yield b"{"
            begun.append(1)
            await rest.wait()

        headers = {**ACCEPT, "Content-Type": "application/json"}
        sent = [asyncio.create_task(caller.http.post("/mcp", content=slow(), headers=headers)) for _ in range(5)]
        while len(begun) < 5:
            await asyncio.sleep(0.005)
        assert await caller.open(await caller.begin()) == [True]
        rest.set()
        assert {answer.status_code for answer in await asyncio.gather(*sent)} == {400}
        assert len(agents.app._sessions) == agents.open_in_sdk == 1


async def test_requests_without_sessions_end_none() -> None:
    async with serving() as agents:
        caller = agents.caller("one")
        ids = [await caller.begin() for _ in range(3)]
        for _ in range(5):
            await caller.post(LIST, **{"Mcp-Protocol-Version": "2026-07-28"})
        assert await caller.open(*ids) == [True] * 3


async def test_an_idle_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 0.05)
    async with serving() as agents:
        caller = agents.caller("one")
        begun = await caller.begin()
        async with asyncio.timeout(60):
            while agents.open_in_sdk:
                await asyncio.sleep(0.01)
        assert await caller.open(begun) == [False]
        assert not agents.app._sessions
