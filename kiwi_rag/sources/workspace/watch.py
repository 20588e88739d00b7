"""The watch of a workspace: its index is updated whenever files change.

The operating system reports changes (inotify or FSEvents, by watchfiles). A burst of changes is one run; nothing is
read while git holds its lock, so a checkout of hundreds of files is one run, too. Events only say which files to
compare with the index. When more than plain files changed, the whole workspace is compared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kiwi_rag.errors import KiwiError
from kiwi_rag.sources.source import SyncReport
from kiwi_rag.sources.workspace.config import WorkspaceConfig, git_folder
from kiwi_rag.sources.workspace.source import IGNORE_FILES, NEVER

if TYPE_CHECKING:
    from watchfiles import Change

BURST_MS = 1_000
"""The longest burst in milliseconds: changes that go on are handled after this time."""
QUIET_MS = 100
"""A burst ends after so many milliseconds without a change."""
TICK = 0.5
"""Seconds between checks of the root, because a deleted folder causes no events."""
GIT_SECONDS = 30.0
"""How long to wait for git's lock; a stale one must not stop the watch for ever."""
MAX_PATHS = 64
"""With more changed files the whole workspace is compared."""
PAUSES = (1.0, 5.0, 30.0)
"""Seconds before the first, second and each further retry of a failed run."""

# Never watched, even if a pattern includes them: installing packages changes tens of thousands of files there.
_NOISY = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".gradle"})

Update = Callable[["Sequence[str] | None"], Awaitable[SyncReport]]
"""Updates the index from the whole workspace (None), or from the files at some paths."""


@dataclass(frozen=True, slots=True)
class Synced:
    """A finished run: its report, its time in seconds, and whether it compared the whole workspace."""

    report: SyncReport
    seconds: float
    whole: bool


@dataclass(frozen=True, slots=True)
class Retrying:
    """A failed run: its error, and in how many seconds it is tried again."""

    error: KiwiError
    pause: float


@dataclass(frozen=True, slots=True)
class RootMissing:
    """The root does not exist; the watch waits for it."""

    root: Path


@dataclass(slots=True)
class _Changes:
    """The changes since the last run; ``whole``: compare the whole workspace. ``event`` is set when there are some."""

    paths: set[str] = field(default_factory=set)
    whole: bool = True
    event: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, paths: Sequence[str], *, whole: bool) -> None:
        self.paths.update(paths)
        self.whole = self.whole or whole or len(self.paths) > MAX_PATHS
        self.event.set()

    def drain(self) -> Sequence[str] | None:
        """Return the changed paths, None for the whole workspace, and reset."""
        paths = None if self.whole else sorted(self.paths)
        self.paths, self.whole = set(), False
        self.event.clear()
        return paths

    @property
    def is_empty(self) -> bool:
        return not (self.paths or self.whole)


async def watch(
    workspace: WorkspaceConfig, update: Update, stop: asyncio.Event
) -> AsyncGenerator[Synced | Retrying | RootMissing]:
    """Update the index from the workspace, then after every change, until `stop` is set; yield each outcome."""
    while not stop.is_set():
        identity = _identity(workspace.root)
        if identity is None:
            yield RootMissing(workspace.root)
            while identity is None and not stop.is_set():
                await _pause(stop, TICK)
                identity = _identity(workspace.root)
            continue
        async with aclosing(_watch_root(workspace, update, stop, identity)) as outcomes:
            async for outcome in outcomes:
                yield outcome


async def _watch_root(
    workspace: WorkspaceConfig, update: Update, stop: asyncio.Event, identity: tuple[int, int]
) -> AsyncGenerator[Synced | Retrying]:
    """Watch the root until it is replaced by another folder or deleted."""
    changes, ended = _Changes(), asyncio.Event()
    listening = asyncio.create_task(_listen(workspace.resolved, changes, ended))
    failures = 0
    try:
        while not stop.is_set() and _identity(workspace.root) == identity:
            # The identity is compared each time: a root that was replaced needs a new watch.
            if listening.done():
                listening.result()  # raises its error: without events the watch would miss changes
            if changes.is_empty:
                await _first(stop, changes.event, TICK)
                continue
            await _wait_for_git(workspace.root, stop)  # in the middle of a checkout half of the files are old
            paths, started = changes.drain(), time.monotonic()
            try:
                report = await update(paths)
            except KiwiError as error:
                if _identity(workspace.root) != identity:
                    return
                failures, pause = _schedule_retry(changes, paths, failures)
                yield Retrying(error, pause)
                await _pause(stop, pause)
                continue
            yield Synced(report, time.monotonic() - started, paths is None)
            model = report.model_failure
            failures, pause = _schedule_retry(changes, sorted(report.failed), failures) if model else (0, 0.0)
            if model:
                yield Retrying(model, pause)
                await _pause(stop, pause)
    finally:
        ended.set()
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


def _schedule_retry(changes: _Changes, paths: Sequence[str] | None, failures: int) -> tuple[int, float]:
    changes.add(paths or (), whole=paths is None)
    return failures + 1, PAUSES[min(failures, len(PAUSES) - 1)]


async def _listen(base: Path, changes: _Changes, ended: asyncio.Event) -> None:
    """Collect the changes below the root, except those of the index and of folders that are never indexed."""
    from watchfiles import awatch

    bursts = awatch(
        base,
        watch_filter=lambda _, path: _is_watched(base, path),
        debounce=BURST_MS,
        step=QUIET_MS,
        stop_event=ended,
        ignore_permission_denied=True,
    )
    async for burst in bursts:
        paths = [Path(path) for _, path in burst]
        changes.add([p.relative_to(base).as_posix() for p in paths], whole=_is_more_than_files(burst))


def _is_watched(base: Path, path: str) -> bool:
    """Whether a change is outside of the folders that are never indexed.

    Called for thousands of changes in a row, so it only compares names and reads no patterns.
    """
    steps = path[len(str(base)) + 1 :].split("/")
    return bool(steps[0]) and not any(step in NEVER or step in _NOISY for step in steps)


def _is_more_than_files(burst: set[tuple[Change, str]]) -> bool:
    return any(Path(path).name in IGNORE_FILES or Path(path).is_dir() for _, path in burst)


async def _wait_for_git(root: Path, stop: asyncio.Event) -> None:
    git = git_folder(root)
    lock, until = (git or root / ".git") / "index.lock", time.monotonic() + GIT_SECONDS
    while lock.exists() and time.monotonic() < until and not stop.is_set():
        await _pause(stop, QUIET_MS / 1000)


def _identity(root: Path) -> tuple[int, int] | None:
    """Return device and inode of the folder at the root; None when there is none."""
    try:
        entry = root.stat()
    except OSError:
        return None
    return (entry.st_dev, entry.st_ino) if root.is_dir() else None


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def _first(stop: asyncio.Event, changed: asyncio.Event, seconds: float) -> None:
    """Wait for either event, or until the time is over."""
    waiting = [asyncio.create_task(stop.wait()), asyncio.create_task(changed.wait())]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
