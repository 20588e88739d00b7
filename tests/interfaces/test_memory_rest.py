"""The memory over REST, and through a running service's command line: roles, limits, hostile exchanges, no traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.interfaces.conftest import Kiwi
from tests.interfaces.mcp_server import connected
from tests.interfaces.test_memory_commands import HERONS, HIDDEN, QUAY, TOKEN
from tests.interfaces.test_serve import at, served, serving
from tests.memories import files_with

ROOT = "/api/v1/memory"


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user in a project, whose service runs there."""
    base, run = tmp_path_factory.mktemp("memory"), tmp_path_factory.mktemp("run")
    base.chmod(0o755)
    (base / "home").mkdir()
    (base / "project/.ai").mkdir(parents=True)
    user = at(Kiwi(base / "home", base / "project"), run, KIWI_PORT="0")
    with serving(user):
        yield user


@pytest.fixture
def remembered(admin: httpx.Client) -> Iterator[None]:
    """Two exchanges, under ids that are forgotten for good: each test has its own."""
    for one in (HERONS, QUAY):
        answer = admin.post(f"{ROOT}/exchanges", json=one)
        assert answer.status_code == 200 or answer.json()["error"]["findings"][0]["code"] == "exchange.changed"
    yield


@pytest.mark.usefixtures("remembered")
def test_an_admin_reads_searches_and_exports(admin: httpx.Client) -> None:
    rows = admin.get(f"{ROOT}/sessions").json()["sessions"]
    assert {row["session_id"]: row["exchanges"] for row in rows} == {"s1": 1, "s2": 1}
    (one,) = admin.get(f"{ROOT}/exchanges", params={"session_id": "s1"}).json()["exchanges"]
    assert HERONS.items() <= one.items()
    assert admin.get(f"{ROOT}/exchanges", params={"id": "e2", "limit": 1}).json()["exchanges"][0]["id"] == "e2"
    assert admin.get(f"{ROOT}/search", params={"query": "herons", "n_results": 1}).json()["hits"][0]["id"] == "e1"
    for given in ({"params": {"ids": ["e2", "e1"]}}, {"params": [("ids", "e2"), ("ids", "e1")]}):
        assert [hit["id"] for hit in admin.get(f"{ROOT}/search", **given).json()["hits"]] == ["e2", "e1"]
    (hit,) = admin.post(f"{ROOT}/search", json={"query": "herons", "n_results": 1}).json()["hits"]
    assert HERONS["user_message"] in hit["text"] and HERONS["assistant_message"] in hit["text"]
    context = admin.post(f"{ROOT}/context", json={"query": "when was the quay built", "max_tokens": 40}).json()
    assert context["excerpts"][0]["exchange_ids"] == ["e2"] and context["tokens"] <= 40
    exported = admin.get(f"{ROOT}/export")
    assert exported.headers["content-type"].startswith("application/x-ndjson")
    assert {json.loads(line)["id"] for line in exported.text.splitlines()} == {"e1", "e2"}
    paths = admin.get("/api/v1/openapi.json").json()["paths"]
    assert {path.removeprefix(ROOT) for path in paths if path.startswith(ROOT)} == {
        "/exchanges", "/sessions", "/search", "/context", "/forget", "/export",
    }  # fmt: skip


@pytest.mark.usefixtures("remembered")
def test_only_an_admin_reaches_it(reader: httpx.Client, admin: httpx.Client, url: str) -> None:
    for path in ("exchanges", "sessions", "search?query=x", "context?query=x", "export", "forget", "./export"):
        assert reader.get(f"{ROOT}/{path}").status_code == 403, path
        assert httpx.get(f"{url}{ROOT}/{path}").status_code == 401, path
        assert reader.post(f"{ROOT}/{path}", json={"query": "x"}).status_code == 403, path
    rebound = admin.get(f"{ROOT}/export", headers={"Host": "evil.example"})
    assert rebound.status_code == 421
    assert admin.get(f"{ROOT}/forget", params={"session_id": "s1", "confirm": True}).status_code == 405


def test_a_hostile_exchange_is_cleaned_bounded_or_refused_and_leaves_no_trace(admin: httpx.Client, user: Kiwi) -> None:
    hostile = {**HERONS, "id": "h1", "session_id": "s3", "assistant_message": f"Unmistakable {TOKEN} {HIDDEN} \x1b[2J"}
    done = admin.post(f"{ROOT}/exchanges", json=hostile).json()
    assert {row["code"] for row in done["redacted"]} >= {"secrets.redacted"}
    (shown,) = admin.get(f"{ROOT}/exchanges", params={"id": "h1"}).json()["exchanges"]
    assert "(redacted)" in shown["assistant_message"] and "\x1b" not in shown["assistant_message"]
    for wrong, status in (
        ({"assistant_message": "x" * (5 << 20)}, 400),
        ({"assistant_message": "x" * (2 << 20)}, 422),
        ({"session_id": "s9"}, 422),
        ({"id": "a\nb"}, 422),
        ({"timestamp": "soon"}, 400),
        ({"unknown": 1}, 400),
    ):
        answer = admin.post(f"{ROOT}/exchanges", json={**hostile, **wrong})
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["code"] in ("usage", "rejected")
    assert admin.post(f"{ROOT}/forget", json={"session_id": "s3"}).status_code == 400
    gone = admin.post(f"{ROOT}/forget", json={"matching": "unmistakable", "confirm": True})
    assert gone.json() == {"forgotten": ["h1"]}
    assert files_with(user.cwd.parent, TOKEN, "ignore all previous", "Unmistakable", "unmistakable") == []
    audited = [one for one in user.json("audit", "show") if one["event"] == "admin"]
    assert any(one["details"].get("session_id") == "s3" for one in audited)


@pytest.mark.usefixtures("remembered")
async def test_an_agents_session_in_the_service_has_the_memory_of_its_own_project(user: Kiwi, tmp_path: Path) -> None:
    other, before = user.at(tmp_path / "other"), served(user)
    (other.cwd / ".ai").mkdir()
    for one, found in ((other, "not-found"), (user, "e1")):
        async with connected(one, "--toolsets", "memory") as client:
            answer = await client.call_tool("search_exchanges", {"query": "where do herons nest", "n_results": 1})
            data = answer.structured_content
            assert found == (data["error"]["code"] if answer.is_error else data["hits"][0]["id"])
    assert served(user) == before + 2


@pytest.mark.usefixtures("remembered")
def test_the_service_answers_searches_of_the_command_line(user: Kiwi) -> None:
    before = served(user)
    assert user.json("memory", "search", "herons", "--limit", "1")["hits"][0]["id"] == "e1"
    assert "roof" in user.run("memory", "context", "herons").stdout
    assert served(user) == before + 2
    assert user.run("memory", "search", "herons", "--user", expect=1).stderr.startswith("kiwi: the memory of the user")
