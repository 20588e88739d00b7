"""Keeping an index at a workspace's files: every save is found a moment later.

The operating system tells what changes (inotify or FSEvents, by watchfiles). What comes in a
burst is one run, a checkout of hundreds of files too: while git holds its lock nothing is read. Events are only a hint
of where to look, and the files themselves decide; whenever more than plain files moved, the whole workspace is looked
at.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kiwi_rag.errors import EmbeddingError, KiwiError
from kiwi_rag.sources.workspace.config import WorkspaceConfig, git_folder
from kiwi_rag.sources.workspace.report import WorkspaceReport
from kiwi_rag.sources.workspace.walk import IGNORE_FILES, NEVER

if TYPE_CHECKING:
    from watchfiles import Change

BURST_MS = 1_000
"""As long as changes keep coming, so many milliseconds are waited for the last."""
QUIET_MS = 100
"""So many milliseconds without a change end a burst."""
TICK = 0.5
"""Seconds between looks at the root: a folder that was deleted tells nothing any more."""
GIT_SECONDS = 30.0
"""How long a lock of git's is waited for; one that was left behind must not stop the watch for good."""
MANY = 64
"""From so many files on the whole workspace is looked at."""
PAUSES = (1.0, 5.0, 30.0)
"""Seconds before a run that failed is tried again, the last for good."""

# Not watched, also where a pattern brings them back: installing packages changes tens of thousands of files there.
_NOISY = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".gradle"})

Bring = Callable[["Sequence[str] | None"], Awaitable[WorkspaceReport]]
"""Brings the index up to the workspace, or to the files at some paths."""


@dataclass(frozen=True, slots=True)
class Synced:
    """A run that went through: what it did, how long it took in seconds, and whether it looked at everything."""

    report: WorkspaceReport
    seconds: float
    whole: bool


@dataclass(frozen=True, slots=True)
class Retrying:
    """Why nothing is done at the moment, and in how many seconds it is tried again."""

    error: KiwiError
    pause: float


@dataclass(frozen=True, slots=True)
class RootMissing:
    """The root is gone; it is waited for."""

    root: Path


@dataclass(slots=True)
class _Changes:
    """What changed since the last run. ``whole``: look at everything."""

    paths: set[str] = field(default_factory=set)
    whole: bool = True
    told: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, paths: Sequence[str], *, whole: bool) -> None:
        self.paths.update(paths)
        self.whole = self.whole or whole or len(self.paths) > MANY
        self.told.set()

    def take(self) -> Sequence[str] | None:
        paths = None if self.whole else sorted(self.paths)
        self.paths, self.whole = set(), False
        self.told.clear()
        return paths

    @property
    def none(self) -> bool:
        return not (self.paths or self.whole)


async def watch(
    place: WorkspaceConfig, bring: Bring, stop: asyncio.Event
) -> AsyncGenerator[Synced | Retrying | RootMissing]:
    """Bring the index up to the workspace, then to every change, until `stop` is set; yield what was done."""
    while not stop.is_set():
        here = _identity(place.root)
        if here is None:
            yield RootMissing(place.root)
            while here is None and not stop.is_set():
                await _pause(stop, TICK)
                here = _identity(place.root)
            continue
        async with aclosing(_watch_root(place, bring, stop, here)) as outcomes:
            async for outcome in outcomes:
                yield outcome


async def _watch_root(
    place: WorkspaceConfig, bring: Bring, stop: asyncio.Event, here: tuple[int, int]
) -> AsyncGenerator[Synced | Retrying]:
    """Watch the root until it is another folder, or none."""
    changes, ended = _Changes(), asyncio.Event()
    listening = asyncio.create_task(_listen(place.resolved, changes, ended))
    failures = 0
    try:
        while not stop.is_set() and _identity(place.root) == here:
            if listening.done():
                listening.result()  # what the watch itself failed with: a deaf one is worse than none
            if changes.none:
                await _first(stop, changes.told, TICK)
                continue
            await _git_is_done(place.root, stop)
            paths, started = changes.take(), time.monotonic()
            try:
                report = await bring(paths)
            except KiwiError as error:
                if _identity(place.root) != here:
                    return
                failures, pause = _again(changes, paths, failures)
                yield Retrying(error, pause)
                await _pause(stop, pause)
                continue
            yield Synced(report, time.monotonic() - started, paths is None)
            model = next((e for e in report.failed.values() if isinstance(e, EmbeddingError)), None)
            failures, pause = _again(changes, sorted(report.failed), failures) if model else (0, 0.0)
            if model:
                yield Retrying(model, pause)
                await _pause(stop, pause)
    finally:
        ended.set()
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


def _again(changes: _Changes, paths: Sequence[str] | None, failures: int) -> tuple[int, float]:
    changes.add(paths or (), whole=paths is None)
    return failures + 1, PAUSES[min(failures, len(PAUSES) - 1)]


async def _listen(base: Path, changes: _Changes, ended: asyncio.Event) -> None:
    """Note what changes below the root, its index and what no index wants aside."""
    from watchfiles import awatch

    told = awatch(
        base,
        watch_filter=lambda _, path: _is_wanted(base, path),
        debounce=BURST_MS,
        step=QUIET_MS,
        stop_event=ended,
        ignore_permission_denied=True,
    )
    async for burst in told:
        paths = [Path(path) for _, path in burst]
        changes.add([p.relative_to(base).as_posix() for p in paths], whole=_is_more_than_files(burst))


def _is_wanted(base: Path, path: str) -> bool:
    """Whether a change is in no folder that is never looked into, as a callback told thousands of them has to know."""
    steps = path[len(str(base)) + 1 :].split("/")
    return bool(steps[0]) and not any(step in NEVER or step in _NOISY for step in steps)


def _is_more_than_files(burst: set[tuple[Change, str]]) -> bool:
    return any(Path(path).name in IGNORE_FILES or Path(path).is_dir() for _, path in burst)


async def _git_is_done(root: Path, stop: asyncio.Event) -> None:
    git = git_folder(root)
    lock, until = (git or root / ".git") / "index.lock", time.monotonic() + GIT_SECONDS
    while lock.exists() and time.monotonic() < until and not stop.is_set():
        await _pause(stop, QUIET_MS / 1000)


def _identity(root: Path) -> tuple[int, int] | None:
    """Return which folder stands at the root; None when none does."""
    try:
        entry = root.stat()
    except OSError:
        return None
    return (entry.st_dev, entry.st_ino) if root.is_dir() else None


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def _first(stop: asyncio.Event, told: asyncio.Event, seconds: float) -> None:
    """Wait for either event, or until the time is over."""
    waiting = [asyncio.create_task(stop.wait()), asyncio.create_task(told.wait())]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
