"""Unit tests use no network: a socket to anywhere but loopback is an error."""

from __future__ import annotations

import pytest

from tests.doors.no_network.loopback_only import close_network


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    close_network(monkeypatch.setattr)
