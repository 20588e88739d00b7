"""The addresses that a server over HTTP listens on, and the names by which it may be called."""

from __future__ import annotations

import socket

import pytest

from kiwi_rag.http import address as addresses


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
