"""Parts of the web interface whose faults depend on time or on a full disk, without a service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from kiwi_rag.errors import StoreBusy, StoreFull
from kiwi_rag.http import web
from kiwi_rag.http.web import index_runs
from kiwi_rag.http.web.home import Home
from kiwi_rag.http.web.page import Done, Form, Notes, confirm
from kiwi_rag.http.web.search import Results, Search
from kiwi_rag.http.web.workspaces import Sources


def client(run: Any) -> TestClient:
    """Return a browser of one form."""
    answer = web._action(run, SimpleNamespace(app=None), Notes())
    app = Starlette(routes=[Route("/delete", answer, methods=["POST"])])
    return TestClient(app, base_url="http://127.0.0.1:27500", follow_redirects=False)


def test_a_record_that_cannot_be_written_is_an_error_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(_form: Form) -> Done:
        return Done("/", "done")

    async def fail(*_given: object) -> None:
        raise StoreFull("cannot write audit.sqlite3: No space left on device", hint="free some space")

    monkeypatch.setattr(web, "record", fail)
    page = client(run).post("/delete")
    assert page.status_code == 500
    assert "The audit record of this form could not be written. Look whether the form was carried out." in page.text
    assert "cannot write audit.sqlite3: No space left on device" in page.text and "free some space" in page.text


@pytest.mark.parametrize(
    ("came_from", "back"),
    [
        ("http://127.0.0.1:27500/sources?x=1", "http://127.0.0.1:27500/sources?x=1"),
        ("http://127.0.0.1:27500/delete", "/"),
        ("http://127.0.0.1:27500.evil.example/", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_cancel_leads_back_to_the_page_of_the_form(came_from: str, back: str) -> None:
    async def run(form: Form) -> Done:
        confirm(form, "Delete it?", "Delete it")
        return Done("/", "done")

    page = client(run).post("/delete", headers={"Referer": came_from} if came_from else {})
    assert f'<a class="target" href="{back}">Cancel</a>' in page.text


def test_an_index_whose_run_has_not_ended_is_a_step_to_do(tmp_path: Path) -> None:
    app: Any = SimpleNamespace(user_dir=tmp_path, keys_dir=tmp_path / "keys", trust=SimpleNamespace(by_key={}))
    home = Home(SimpleNamespace(app=app), None)  # type: ignore[arg-type]
    for row, result in (
        ({"run": "begun", "complete": False}, ""),
        ({"run": "complete", "complete": False}, ""),
        ({"run": "partly", "complete": False}, "/docs"),
        ({"run": "complete", "complete": True}, "/docs"),
        ({"error": {}}, ""),
    ):
        assert {step.name: step.result for step in home.steps([{"root": "/docs", **row}])}["index"] == result


def test_a_run_that_ends_meanwhile_is_shown_with_the_state_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = SimpleNamespace(state="running")
    context: Any = SimpleNamespace(
        app=SimpleNamespace(user_dir=tmp_path, embed=None),
        jobs=SimpleNamespace(running=job, latest=job),
        workspace=SimpleNamespace(config=SimpleNamespace(root=tmp_path)),
    )
    seen: list[str] = []

    async def rows(*_given: object) -> list[str]:
        seen.append(job.state)
        return [*seen]

    def end(_app: object) -> None:
        job.state = "done"

    monkeypatch.setattr(index_runs, "workspace_rows", rows)
    monkeypatch.setattr(index_runs, "cache_state", end)
    page = asyncio.run(index_runs.Indexing(context, Any).show_runs(Any))  # type: ignore[arg-type]
    assert page.values["rows"][-1] == "done"


def test_nothing_is_asked_that_would_be_refused() -> None:
    context: Any = SimpleNamespace(app=None, jobs=SimpleNamespace(running=SimpleNamespace(name="index /docs")))
    with pytest.raises(StoreBusy, match="a job is running: index /docs"):
        asyncio.run(Sources(context, Any).delete(Form("root=/docs")))  # type: ignore[arg-type]


def test_what_is_close_to_the_query_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    row: dict[str, Any] = {"key": ("a", 1), "rank": 1, "score": 0.4}
    found = [Results("none"), Results("far", [row | {"score": 0.9}], close=False), Results("near", [row], close=True)]
    found += [Results("items", [row | {"item_id": "acme/note", "score": 0.3}])]
    found += [Results("broken", error={"code": "store"}), Results("unknown", [row | {"score": 0.5}])]

    async def one(part: Results) -> Results:
        return part

    search = object.__new__(Search)
    monkeypatch.setattr(Search, "_parts", lambda *_given: map(one, found))
    columns = asyncio.run(search._columns(SimpleNamespace(rankings=[None])))  # type: ignore[arg-type]
    assert [part.title for part in columns[0]] == ["items", "broken", "unknown", "near", "far", "none"]
