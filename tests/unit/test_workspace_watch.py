"""The loop of a watch, over a real folder and an update that is made up: git's lock and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from kiwi_rag.errors import EmbeddingError, StoreError
from kiwi_rag.sources.source import SyncReport
from kiwi_rag.sources.workspace import watch as module
from kiwi_rag.sources.workspace.config import WorkspaceConfig
from kiwi_rag.sources.workspace.watch import Retrying, Synced, Update, watch

PATIENCE = 60.0


async def until_synced(root: Path, update: Update, runs: int = 1) -> list[Synced | Retrying]:
    """Watch `root` until so many runs finished without a failure; return all outcomes."""
    outcomes: list[Synced | Retrying] = []
    async with asyncio.timeout(PATIENCE), aclosing(watch(WorkspaceConfig(root, "yard"), update)) as found:
        async for outcome in found:
            outcomes.append(outcome)
            if sum(isinstance(one, Synced) and not one.report.failed for one in outcomes) == runs:
                break
    return outcomes


async def test_nothing_is_read_while_git_holds_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, checks, seen = tmp_path / ".git/index.lock", [], []
    lock.parent.mkdir()
    lock.touch()
    is_locked = module._is_locked

    def third_check_finds_it_gone(root: Path) -> bool:
        checks.append(root)
        if len(checks) == 3:
            lock.unlink()
        return is_locked(root)

    async def update(_paths: Sequence[str] | None) -> SyncReport:
        seen.append(lock.exists())
        return SyncReport()

    monkeypatch.setattr(module, "_is_locked", third_check_finds_it_gone)
    await until_synced(tmp_path, update)
    assert (len(checks), seen) == (3, [False])


async def test_a_stale_lock_does_not_stop_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/index.lock").touch()
    monkeypatch.setattr(module, "GIT_SECONDS", 0.1)

    async def update(_paths: Sequence[str] | None) -> SyncReport:
        return SyncReport()

    assert len(await until_synced(tmp_path, update)) == 1


async def test_a_failed_run_is_tried_again_with_what_it_was_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.01, 0.02))
    down, model = StoreError("the disk is gone"), EmbeddingError("the model is gone")
    answers = [down, down, SyncReport(failed={"a.md": model}), SyncReport()]
    asked: list[Sequence[str] | None] = []

    async def update(paths: Sequence[str] | None) -> SyncReport:
        asked.append(paths)
        answer = answers.pop(0)
        if isinstance(answer, SyncReport):
            return answer
        raise answer

    outcomes = await until_synced(tmp_path, update)
    failures = [(one.error, one.pause) for one in outcomes if isinstance(one, Retrying)]
    assert failures == [(down, 0.01), (down, 0.02), (model, 0.02)]
    assert asked == [None, None, None, ["a.md"]]
    assert [one.whole for one in outcomes if isinstance(one, Synced)] == [True, False]


async def test_a_change_during_a_run_is_in_the_next_one(tmp_path: Path) -> None:
    asked: list[Sequence[str] | None] = []

    async def update(paths: Sequence[str] | None) -> SyncReport:
        asked.append(paths)
        if len(asked) == 1:
            (tmp_path / "late.md").write_text("late\n")
        return SyncReport()

    await until_synced(tmp_path, update, runs=2)
    assert asked == [None, ["late.md"]]


async def test_a_change_stops_the_embedding_and_it_goes_on_after_the_update(tmp_path: Path) -> None:
    events: list[str] = []

    async def update(paths: Sequence[str] | None) -> SyncReport:
        events.append(f"update {paths and paths[0]}")
        return SyncReport()

    async def embed() -> SyncReport:
        events.append("embed")
        try:
            if events.count("embed") == 1:
                (tmp_path / "late.md").write_text("late\n")
                await asyncio.Event().wait()
        finally:
            events.append("stopped" if events.count("embed") == 1 else "embedded")
        return SyncReport()

    async with asyncio.timeout(PATIENCE), aclosing(watch(WorkspaceConfig(tmp_path, "yard"), update, embed)) as found:
        async for _ in found:
            if events.count("update late.md"):
                break
    assert events[:4] == ["update None", "embed", "stopped", "update late.md"]


async def test_a_failed_embedding_is_reported_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.01,))
    down = EmbeddingError("the model is gone")
    answers = [SyncReport(failed={"a.md": down}), SyncReport()]

    async def update(_paths: Sequence[str] | None) -> SyncReport:
        return SyncReport()

    async def embed() -> SyncReport:
        return answers.pop(0)

    async with asyncio.timeout(PATIENCE), aclosing(watch(WorkspaceConfig(tmp_path, "yard"), update, embed)) as found:
        outcomes = [await anext(found), await anext(found)]
        while answers:
            await asyncio.sleep(0.01)
    assert outcomes[1] == Retrying(down, 0.01)
