"""One token is one client, whatever cookies it sends."""

from __future__ import annotations

import pytest

from kiwi_rag.http import limits
from tests.unit.test_http_limits import Running, running  # noqa: F401


async def test_one_token_with_many_cookies_does_not_take_all_places(
    running: Running, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    monkeypatch.setattr(limits, "CLIENT_CONNECTIONS", 3)
    head = b" HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nCookie: junk=%d\r\n\r\n"
    for number in range(limits.PORT_CONNECTIONS):
        await running.connect(b"GET /work" + head % (b"one", number))
    await running.until(lambda: running.application.begun >= 3)
    assert await (await running.connect(b"GET /" + head % (b"two", 0))).status() == 200
