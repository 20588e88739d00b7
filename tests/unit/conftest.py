"""Unit tests use no network: a socket to anywhere but loopback is an error."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from tests.interfaces.no_network import closed_network

_real_getaddrinfo = socket.getaddrinfo


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", closed_network.connect)
    monkeypatch.setattr(socket.socket, "connect_ex", closed_network.connect_ex)
    monkeypatch.setattr(socket, "getaddrinfo", _getaddrinfo)


def _getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
    """Look up what needs no name server; a name below ``.invalid`` is unknown everywhere (RFC 6761)."""
    host = closed_network.name_of(host)
    if str(host).endswith(".invalid"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    if _is_address(host):
        return _real_getaddrinfo(host, *arguments, **options)
    return closed_network.getaddrinfo(host, *arguments, **options)


def _is_address(host: Any) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
