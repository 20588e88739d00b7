"""The pages of indexing without a service: what leaves the machine, what it costs, and the history of runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kiwi_rag.errors import SourceUnreadable, StoreBusy, UsageError
from kiwi_rag.http.apps import Apps
from kiwi_rag.http.web import workspaces
from kiwi_rag.http.web.index_runs import Indexing, estimate_cost, what_leaves
from kiwi_rag.http.web.page import Form
from kiwi_rag.ingest.sync import Callbacks
from kiwi_rag.mcp.jobs import Jobs
from kiwi_rag.mcp.workspace import index_work
from kiwi_rag.services import Services
from kiwi_rag.usecases.status import read_history, recorded_run

REMOTE = {"KIWI_EMBEDDING_PROVIDER": "openai", "KIWI_EMBEDDING_BASE_URL": "https://embed.example/v1"}
OLLAMA = {"KIWI_EMBEDDING_PROVIDER": "ollama", "KIWI_EMBEDDING_MODEL": "nomic-embed-text"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one note, in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.md").write_text("# A\n\n" + "The night shift found the backup. " * 100)
    return tmp_path / "notes"


def opened(home: Path, **environ: str) -> Services:
    return Services.open({"HOME": str(home), "KIWI_HOME": str(home / ".ai"), **environ}, home)


@pytest.mark.parametrize(
    ("environ", "sent", "cost"),
    [
        ({**REMOTE}, [("embedding", "embed.example")], 0.02),
        ({**REMOTE, "KIWI_EMBEDDING_MODEL": "unheard-of"}, [("embedding", "embed.example")], None),
        ({**OLLAMA}, [], 0.0),
        ({**OLLAMA, "KIWI_EMBEDDING_FALLBACKS": "http://far.example:11434"}, [("embedding", "far.example")], 0.0),
        ({"KIWI_WORKSPACE_STORE": "qdrant", "KIWI_QDRANT_URL": "https://q.example"}, [("store", "q.example")], None),
        ({}, [], None),
    ],
    ids=str,
)
def test_what_leaves_the_machine_and_its_cost(
    tmp_path: Path, environ: dict, sent: list[tuple[str, str]], cost: float | None
):
    app = opened(tmp_path, **environ)
    assert what_leaves(app) == sent
    if app.settings.embedding_provider != "onnx":
        assert estimate_cost(app, 3_500_000) == cost


async def test_nothing_is_added_without_consent(folder: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in REMOTE.items():
        monkeypatch.setenv(name, value)
    root = SimpleNamespace(config=SimpleNamespace(root=folder))
    context = SimpleNamespace(app=None, jobs=Jobs(), workspace=root)
    section = Indexing(context, None)  # type: ignore[arg-type]
    request = SimpleNamespace(query_params={"chosen": str(folder)})
    found = (await section.show_folder(request)).values  # type: ignore[arg-type]
    assert (
        found["leaves"] == ["Kiwi sends texts to an embedding model at embed.example."]
        and found["seconds"] is None
        and found["cost"] > 0
    )
    with pytest.raises(UsageError, match="the consent was not given"):
        await section.add(Form({"folder": str(folder), "name": "other"}))
    assert not (folder / ".ai").exists()
    section._workspaces = SimpleNamespace(add=lambda _root: None)  # type: ignore[assignment]

    async def start(_root: str) -> None:
        return

    monkeypatch.setattr(section, "_start", start)
    await section.add(Form({"folder": str(folder), "consent": "yes"}))
    allowed = opened(folder.parent).consent.all()
    assert {host: [*purposes] for host, purposes in allowed.items()} == {"embed.example": ["embedding"]}


def test_the_history_leaves_out_what_is_no_record(tmp_path: Path):
    assert list(read_history(tmp_path)) == []
    (tmp_path / "runs.jsonl").write_text('{"at": 1}\n{"at": 2}\n{"at"')
    assert [record["at"] for record in read_history(tmp_path)] == [2, 1]


@pytest.mark.parametrize(
    ("error", "outcome"), [(None, "done"), (StoreBusy("x"), "failed"), (asyncio.CancelledError(), "stopped")], ids=repr
)
def test_every_end_of_a_run_is_recorded(tmp_path: Path, error: BaseException | None, outcome: str):
    with (
        suppress(StoreBusy, asyncio.CancelledError),
        recorded_run(tmp_path, "notes", named=2, rebuild=False) as report,
    ):
        report.skipped["a.bin"] = "no text"
        if error:
            raise error
    (record,) = read_history(tmp_path)
    assert (record["outcome"], record["named"], record["skipped"]) == (outcome, 2, 1)


def test_the_list_of_workspaces_is_read_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own: Any = SimpleNamespace(is_indexed=False)
    context: Any = SimpleNamespace(app=SimpleNamespace(user_dir=tmp_path, project_dir=None), workspace=own)
    reads: list[Path] = []
    read = workspaces.read_optional
    monkeypatch.setattr(workspaces, "read_optional", lambda *given: reads.append(given[0]) or read(*given))
    listed = workspaces.Workspaces(context, Apps())
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        listed.add(tmp_path / folder)
        before = len(reads)
        assert listed.roots[-1] == listed.roots[-1] == tmp_path / folder
        assert len(reads) <= before + 1
    (tmp_path / "workspaces.json").unlink()
    assert listed.roots == []


class Hanging:
    """A workspace whose run does not end before it is stopped."""

    root, title = Path("/srv/notes"), "/srv/notes"
    config = SimpleNamespace(root=root)

    async def writer(self, *, rebuild: bool) -> object:
        return object()

    async def update(self, _writer: object, _paths: object, callbacks: Callbacks) -> None:
        report = callbacks.report()
        report.skipped["<b>.bin"] = "no text"
        report.failed["a.md"] = SourceUnreadable("cannot read a.md", hint="check its mode")
        callbacks.planned(8)(2)
        await asyncio.Event().wait()


async def test_a_run_is_watched_and_stopped(tmp_path: Path):
    app = SimpleNamespace(user_dir=tmp_path)
    root = SimpleNamespace(config=Hanging.config)
    context: Any = SimpleNamespace(jobs=Jobs(), workspace=root, writing=asyncio.Lock(), app=app)
    section = Indexing(context, None)  # type: ignore[arg-type]
    job = context.jobs.start("index /srv/notes", index_work(context, Hanging()))  # type: ignore[arg-type]
    while not job.total:
        await asyncio.sleep(0)
    stream = (await section.events(None)).body_iterator  # type: ignore[arg-type]
    event = await anext(stream)
    assert "Reading files" in event and "2 of 8 files" in event
    assert "&lt;b&gt;.bin" in event and "check its mode" in event
    assert all(line.startswith("data: ") for line in event.strip().split("\n"))
    with pytest.raises(StoreBusy, match="index /srv/notes"):
        await section.add(Form({"folder": str(tmp_path)}))
    assert "What it has stored is kept" in (await section.stop(Form({"job": job.id}))).message
    assert await anext(stream) == "event: ended\ndata:\n\n"
    assert job.state == "cancelled"
    record = next(read_history(tmp_path))
    assert (record["outcome"], record["failed"], record["skipped"]) == ("stopped", 1, 1)
