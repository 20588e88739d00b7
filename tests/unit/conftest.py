"""Unit tests use no network: a socket to anywhere but loopback is an error."""

from __future__ import annotations

import socket

import pytest

from tests.doors.no_network import closed_network


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", closed_network.connect)
    monkeypatch.setattr(socket.socket, "connect_ex", closed_network.connect_ex)
    monkeypatch.setattr(socket, "getaddrinfo", closed_network.getaddrinfo)
