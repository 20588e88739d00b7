"""The network is closed in unit tests, but for loopback and Unix sockets."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

CLOSED = "the network is closed in tests"


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1", "example.com"])
async def test_a_socket_to_another_machine_is_refused(address: str) -> None:
    with pytest.raises(RuntimeError, match=CLOSED):
        socket.create_connection((address, 80), timeout=1)
    with pytest.raises(RuntimeError, match=CLOSED):
        await asyncio.open_connection(address, 80)


def test_a_connection_without_a_name_look_up_is_refused() -> None:
    with socket.socket() as plain:
        with pytest.raises(RuntimeError, match=CLOSED):
            plain.connect(("192.0.2.1", 80))
        with pytest.raises(RuntimeError, match=CLOSED):
            plain.connect_ex(("192.0.2.1", 80))


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_loopback_is_open(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection((name, server.getsockname()[1]), timeout=30).close()


def test_unix_sockets_are_open(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        client.connect(str(tmp_path / "s"))
