"""Clients that take for ever to send something."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvicorn

from kiwi_rag.http import address as addresses
from kiwi_rag.http import limits


async def answer(scope: Any, receive: Any, send: Any) -> None:
    message = {"type": "http.request", "more_body": True}
    while message.get("more_body"):
        message = await receive()
    status = 200 if message["type"] == "http.request" else 500
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
async def address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "HEAD_SECONDS", 0.4)
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.4)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            addresses.require_token(answer, ""), http=limits.HeadTimeout, lifespan="off", log_config=None
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        yield listening.getsockname()
        server.should_exit = True
        await serving


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nX: "])
async def test_a_head_that_never_ends_is_hung_up_on(address: tuple[str, int], sent: bytes) -> None:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


async def test_a_body_that_never_ends_is_no_request_and_a_whole_one_is(address: tuple[str, int]) -> None:
    for length, body, status in ((5, b"whole", b"200"), (50, b"half", b"500")):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (length, body))
        head = await asyncio.wait_for(reader.readline(), 60)
        assert status in head
        writer.close()


@pytest.mark.parametrize(
    ("host", "names", "checked"),
    [("127.0.0.1", (), True), ("10.1.2.3", (), True), ("0.0.0.0", (), False), ("::", (), False), ("::", ("a",), True)],
)
def test_hosts_are_checked_wherever_it_is_known_what_it_is_called(
    host: str, names: tuple[str, ...], checked: bool
) -> None:
    security = addresses.security(host, names)
    assert security.enable_dns_rebinding_protection is checked
    assert set(names) <= set(security.allowed_hosts)


def test_a_connection_sends_each_part_of_an_answer_at_once() -> None:
    """Without TCP_NODELAY each answer took 40 ms more: asyncio sets it on sockets of some makers alone."""
    with (
        addresses.listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
