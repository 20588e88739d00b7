"""The page Models and stores where something is missing or remote, and a search that nobody waits for."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from kiwi_rag.http import web
from kiwi_rag.http.apps import Apps
from kiwi_rag.http.web.search import while_connected
from kiwi_rag.http.web.workspaces import Workspaces
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.services import Services


def call(folder: Path, method: str, path: str, form: dict[str, str] | None = None, **settings: str) -> httpx.Response:
    """Return an answer of the pages for a user with an empty home in `folder`."""
    environment = {"HOME": str(folder), "KIWI_CACHE_DIR": str(folder / "cache"), **settings}

    async def answer() -> httpx.Response:
        async with Services.open(environment, folder) as app:
            context, apps = ServerContext(app), Apps()
            pages = Starlette(routes=web.routes(context, Workspaces(context, apps)))

            async def signed_in(scope: Scope, receive: Receive, send: Send) -> None:
                await pages({**scope, "state": {"caller": "a test"}}, receive, send)

            transport = httpx.ASGITransport(app=signed_in)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                found = await client.request(method, path, data=form)
            await context.aclose()
            return found

    return asyncio.run(answer())


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_weaviate_is_started_stopped_and_recreated_by_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker, log, path = tmp_path / "bin/docker", tmp_path / "log", "/stores/weaviate"
    monkeypatch.setenv("PATH", str(docker.parent))
    assert "Docker is not installed" in call(tmp_path, "POST", path, {"action": "start"}).text
    assert "Start Weaviate" not in call(tmp_path, "GET", "/stores").text
    docker.parent.mkdir()
    docker.write_text(f'#!/bin/sh\necho "$WEAVIATE_API_KEY $*" >> {log}\n')
    docker.chmod(0o755)
    assert "Start Weaviate" in call(tmp_path, "GET", "/stores").text
    for action, words in (
        ("start", "up --detach --wait"),
        ("recreate", "up --detach --wait --force-recreate"),
        ("stop", "stop"),
    ):
        form = {"action": action}
        if action != "start":
            assert "Its data stays" in call(tmp_path, "POST", path, form).text
        answer = call(tmp_path, "POST", path, {**form, "confirmed": "yes"}, KIWI_WEAVIATE_API_KEY="k-e-y")
        assert answer.status_code == 303
        last = log.read_text().splitlines()[-1]
        assert last.startswith("k-e-y compose --file ")
        assert last.endswith(f"weaviate.yml {words}")
    assert len(log.read_text().splitlines()) == 3
    assert "there is no action" in call(tmp_path, "POST", path, {"action": "down -v", "confirmed": "yes"}).text
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    failed = call(tmp_path, "POST", path, {"action": "start"}).text
    assert "could not start Weaviate: Cannot connect to the Docker daemon" in failed


def test_the_use_of_a_remote_model_by_day(tmp_path: Path) -> None:
    log = tmp_path / "cache/usage.jsonl"
    log.parent.mkdir()
    used = {"provider": "openai", "model": "text-embedding-3-small", "texts": 2, "seconds": 0.25, "server": "a:443"}
    rows = [{**used, "tokens": 1500, "cost_usd": 0.00003}, {**used, "tokens": None, "outcome": "rate-limited 429"}]
    now = datetime.now(UTC).isoformat()
    log.write_text("".join(json.dumps({"outcome": "ok", "at": now, **row}) + "\n" for row in rows))
    page = call(tmp_path, "GET", "/stores").text
    assert "<h3>openai text-embedding-3-small</h3>" in page
    assert "<td>1,500</td><td>$0.000030</td><td>250 ms</td><td>250 ms</td><td>1</td>" in page
    for title in ("Tokens", "Cost", "Latency, median"):
        assert re.search(rf'aria-label="{title} by day.*?height="40.0"', page, re.DOTALL), title


def test_what_is_sent_to_whom_is_named_and_an_unreachable_model_is_an_error(tmp_path: Path, closed_port: int) -> None:
    server = f"http://127.0.0.1:{closed_port}/v1"
    remote = {"KIWI_EMBEDDING_PROVIDER": "openai", "KIWI_EMBEDDING_BASE_URL": server, "KIWI_EMBEDDING_API_KEY": "sk-x"}
    page = call(tmp_path, "GET", "/stores", **remote).text
    assert re.search(rf"The test sends this sentence to <strong>{re.escape(server)}</strong>: “A test sentence", page)
    assert "sk-x" not in page
    tested = call(tmp_path, "POST", "/stores/test", **remote)
    assert tested.status_code >= 400
    assert f"127.0.0.1:{closed_port}" in tested.text and "sk-x" not in tested.text


def test_a_registry_that_cannot_be_reached_is_said_to_be(tmp_path: Path, closed_port: int) -> None:
    elsewhere = {"KIWI_REGISTRY_URL": f"postgresql://kiwi:secret@127.0.0.1:{closed_port}/kiwi"}
    page = call(tmp_path, "GET", "/stores", **elsewhere).text
    assert "It cannot be reached: " in page and "Its operator starts and stops it." in page
    assert "secret" not in page and 'action="/registry/start"' not in page
    refused = call(tmp_path, "POST", "/registry/start", **elsewhere)
    assert refused.status_code == 400
    assert "is not the embedded registry" in refused.text


def test_a_search_that_the_browser_no_longer_waits_for_is_cancelled() -> None:
    class Gone:
        async def is_disconnected(self) -> bool:
            return True

    async def run() -> tuple[object, bool]:
        work = asyncio.ensure_future(asyncio.Event().wait())
        result = await while_connected(Gone(), work)
        await asyncio.wait([work])
        return result, work.cancelled()

    assert asyncio.run(run()) == (None, True)
