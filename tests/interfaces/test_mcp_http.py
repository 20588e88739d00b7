"""`kiwi mcp --http`: who may speak to it, and what it stands."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from kiwi_rag.http.sessions import MAX_OF_CALLER
from tests.interfaces.conftest import Kiwi
from tests.interfaces.mcp_server import StrictClient, post, serving

TOKEN = "a-token-for-tests-0123456789"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.fixture(scope="module")
def url(acme: Kiwi):
    with serving(acme) as url:
        yield url


def test_a_web_page_cannot_speak_to_it(url: str) -> None:
    assert post(url, INITIALIZE)[0] == 200
    assert post(url, INITIALIZE, Host="evil.example")[0] == 421
    assert post(url, INITIALIZE, Host="127.0.0.1.evil.example:80")[0] == 421
    assert post(url, INITIALIZE, Origin="http://evil.example")[0] == 403
    assert post(url, INITIALIZE, Origin="null")[0] == 403
    assert post(url, INITIALIZE, Origin="http://localhost:3000")[0] == 200


def test_what_is_no_message_is_a_protocol_error(url: str) -> None:
    for body in (b"{", b"[]", b"null", b'{"jsonrpc":"2.0"}', b'"x"', b"\xff\xfe"):
        status, _, text = post(url, body)
        assert status == 400, (body, status)
        assert json.loads(text)["error"]["code"] in {-32700, -32600, -32602}
    status, _, _ = post(url, b'{"x":"' + b"x" * 5_000_000 + b'"}')
    assert status == 413
    assert post(url, INITIALIZE)[0] == 200


def test_a_client_that_initializes_again_and_again_ends_its_oldest_sessions(acme: Kiwi) -> None:
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    with serving(acme) as url:
        begun = [post(url, INITIALIZE)[1]["mcp-session-id"] for _ in range(MAX_OF_CALLER + 1)]
        assert post(url, listing, Mcp_Session_Id=begun[0])[0] == 404
        assert {post(url, listing, Mcp_Session_Id=one)[0] for one in begun[1:]} == {200}


def test_beyond_this_machine_only_with_a_token(acme: Kiwi) -> None:
    refused = acme.run_forked("mcp", "--http", "--host", "0.0.0.0", "--port", "0", expect=2)
    assert "there is no token" in refused.stderr
    assert "KIWI_MCP_TOKEN" in refused.stderr
    short = with_token(acme, "short").run_forked("mcp", "--http", expect=2)
    assert "at least 16" in short.stderr
    user = with_token(acme, TOKEN)
    with serving(user, "--host", "0.0.0.0") as url:
        here = url.replace("0.0.0.0", "127.0.0.1")
        for sent in (
            {},
            {"Authorization": "Bearer no"},
            {"Authorization": TOKEN},
            {"Authorization": f"Bearer {TOKEN}x"},
        ):
            status, headers, _ = post(here, INITIALIZE, **sent)
            assert (status, headers.get("www-authenticate", "")[:6]) == (401, "Bearer")
        assert post(here, INITIALIZE, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert post(here, INITIALIZE, Authorization=f"bearer {TOKEN}", Host="kiwi.acme.example:8765")[0] == 200
    with serving(user, "--host", "0.0.0.0", "--name", "kiwi.acme.example") as url:
        here, told = url.replace("0.0.0.0", "127.0.0.1"), {"Authorization": f"Bearer {TOKEN}"}
        assert (
            post(here, INITIALIZE, Host="kiwi.acme.example:8765", Origin="https://kiwi.acme.example", **told)[0] == 200
        )
        assert post(here, INITIALIZE, Host="evil.example", **told)[0] == 421
        assert post(here, INITIALIZE, Origin="https://evil.example", **told)[0] == 403


@pytest.mark.parametrize("given", [["--token", TOKEN], [f"--token={TOKEN}"], ["--token="]])
@pytest.mark.parametrize("way", [[], ["--http"]])
def test_a_token_is_no_argument(acme: Kiwi, way: list[str], given: list[str]) -> None:
    """Every user of the machine can read it there; the variable that the hint names is read instead."""
    refused = acme.run("mcp", *way, *given, expect=2).stderr
    assert "can read a token on the command line" in refused and "KIWI_MCP_TOKEN" in refused
    assert TOKEN not in refused
    assert "--token" not in acme.run("mcp", "--help").stdout


def with_token(user: Kiwi, token: str) -> Kiwi:
    return replace(user, extra={**user.extra, "KIWI_MCP_TOKEN": token})


def test_a_port_that_is_taken_is_told(acme: Kiwi) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        told = acme.run_forked("mcp", "--http", "--port", str(taken.getsockname()[1]), expect=2).stderr
    assert "cannot listen" in told


async def test_many_clients_search_at_once(url: str) -> None:
    async def ask(number: int) -> list[str]:
        async with StrictClient(url) as client:
            words = ("rollback", "deploy", "flaky test", "incident")[number % 4]
            found = [await client.call_tool("kiwi_search", {"query": words}) for _ in range(5)]
            assert not any(one.is_error for one in found)
            return [hit["ref"] for hit in found[0].structured_content["hits"]]

    answers = await asyncio.gather(*(ask(number) for number in range(12)))
    assert answers[0] == answers[4] == answers[8]
    assert answers[0] != answers[1]


async def test_a_client_that_hangs_up_in_mid_call_harms_nobody(url: str) -> None:
    place = urlsplit(url)
    call = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "kiwi_search", "arguments": {"q": "x"}},
    }
    _, headers, _ = post(url, INITIALIZE)
    session = {name.lower(): value for name, value in headers.items()}["mcp-session-id"]
    body = json.dumps(call).encode()
    for _ in range(10):
        with socket.create_connection((place.hostname, place.port)) as raw:
            raw.sendall(
                f"POST {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
                f"Accept: application/json, text/event-stream\r\nMcp-Session-Id: {session}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
    async with StrictClient(url) as client:
        assert not (await client.call_tool("kiwi_search", {"query": "rollback"})).is_error


async def test_two_clients_writing_at_once_lose_nothing(ready: Kiwi) -> None:
    from tests.interfaces.conftest import note

    for number in range(6):
        ready.write(f"knowledge/acme/n{number}.md", note(extra=f"Gate {number} wakes at {number}."))
    ready.run("--quiet", "sign", ".ai")
    ready.run("--quiet", "index")
    with serving(ready, "--allow-write") as url:

        async def publish(numbers: range) -> dict:
            async with StrictClient(url, read_timeout_seconds=120) as client:
                refs = [f"knowledge:acme/n{number}" for number in numbers]
                done = await client.call_tool("kiwi_publish", {"refs": refs})
                assert not done.is_error, done.content[0].text
                return done.structured_content

        first, second = await asyncio.gather(publish(range(4)), publish(range(2, 6)))
    assert first["refused"] == second["refused"] == []
    assert len(first["published"]) == len(second["published"]) == 4
    published = {row["item_id"] for row in ready.json("list", "--source", "registry")}
    assert published == {f"acme/n{number}" for number in range(6)}
