"""The watch of a workspace: its index is updated whenever files change.

The operating system reports changes (inotify or FSEvents, by watchfiles). A burst of changes is one run; nothing is
read while git holds its lock, so a checkout of hundreds of files is one run, too. Events only say which files to
compare with the index. When more than plain files changed, the whole workspace is compared. What a run stored for the
search by words is embedded between the runs: a change stops that, and it goes on after the run.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from kiwi_rag.errors import KiwiError
from kiwi_rag.sources.source import SyncReport
from kiwi_rag.sources.workspace.config import WorkspaceConfig, git_folder
from kiwi_rag.sources.workspace.source import IGNORE_FILES, NEVER

BURST_MS = 1_000
"""The longest burst in milliseconds: changes that go on are handled after this time."""
QUIET_MS = 100
"""A burst ends after so many milliseconds without a change."""
TICK_MS = 500
"""Milliseconds between checks of the root, because a deleted folder causes no events."""
GIT_SECONDS = 30.0
"""How long to wait for git's lock; a stale one must not stop the watch for ever."""
MAX_PATHS = 64
"""With more changed files the whole workspace is compared."""
PAUSES = (1.0, 5.0, 30.0)
"""Seconds before the first, second and each further retry of a failed run."""

# Never watched, even if a pattern includes them: installing packages changes tens of thousands of files there.
_TEXTS = (".md", ".markdown", ".txt")
_NOISY = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".gradle"})

Update = Callable[["Sequence[str] | None"], Awaitable[SyncReport]]
"""Updates the index from the whole workspace (None), or from the files at some paths."""
Embed = Callable[[], Awaitable[SyncReport]]
"""Embeds what updates stored without vectors; it may be cancelled."""


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
    """The changes since the last run, and since when there are some; ``whole``: compare the whole workspace."""

    paths: set[str] = field(default_factory=set)
    whole: bool = True
    since: float = field(default_factory=time.monotonic)

    def add(self, paths: Sequence[str], *, whole: bool) -> None:
        if self.is_empty:
            self.since = time.monotonic()
        self.paths.update(paths)
        self.whole = self.whole or whole or len(self.paths) > MAX_PATHS

    def drain(self) -> Sequence[str] | None:
        """Return the changed paths, None for the whole workspace, and reset."""
        paths = None if self.whole else sorted(self.paths)
        self.paths, self.whole = set(), False
        return paths

    @property
    def is_empty(self) -> bool:
        return not (self.paths or self.whole)


class _Embedding:
    """The embedding between updates; ``failed`` holds its failures, each of which is tried again."""

    def __init__(self, embed: Embed | None) -> None:
        self._embed = embed
        self._task: asyncio.Task[None] | None = None
        self.failed: list[Retrying] = []

    def start(self) -> None:
        if self._embed is not None:
            self._task = asyncio.create_task(self._run(self._embed))

    async def stop(self) -> None:
        """Stop before the next group of passages; those that are stored stay."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, embed: Embed) -> None:
        failures = 0
        while failure := await _failure_of(embed):
            self.failed.append(Retrying(failure, _pause(failures)))
            await asyncio.sleep(_pause(failures))
            failures += 1


async def _failure_of(embed: Embed) -> KiwiError | None:
    try:
        return (await embed()).model_failure
    except KiwiError as error:
        return error


def _pause(failures: int) -> float:
    """Return how many seconds to wait after a failure that followed so many others."""
    return PAUSES[min(failures, len(PAUSES) - 1)]


async def watch(
    workspace: WorkspaceConfig, update: Update, embed: Embed | None = None, only: Collection[str] = ()
) -> AsyncGenerator[Synced | Retrying | RootMissing]:
    """Update the index from the workspace, then after every change, until it is cancelled; yield each outcome.

    With `only`, changes in these folders of the root alone count, and of texts beside them.
    """
    while True:
        identity = _identity(workspace.root)
        if identity is None:
            yield RootMissing(workspace.root)
            while _identity(workspace.root) is None:  # noqa: ASYNC110  # a missing folder sends no events
                await asyncio.sleep(TICK_MS / 1000)
            continue
        embedding = _Embedding(embed)
        try:
            async with aclosing(_watch_root(workspace, update, embedding, identity, only)) as outcomes:
                async for outcome in outcomes:
                    yield outcome
        finally:
            await embedding.stop()


async def _watch_root(
    workspace: WorkspaceConfig,
    update: Update,
    embedding: _Embedding,
    identity: tuple[int, int],
    only: Collection[str],
) -> AsyncGenerator[Synced | Retrying]:
    """Watch the root until it is replaced by another folder or deleted."""
    from watchfiles import awatch

    base, changes, failures = workspace.resolved, _Changes(), 0
    bursts = awatch(
        base, watch_filter=None, debounce=BURST_MS, step=QUIET_MS, rust_timeout=TICK_MS, yield_on_timeout=True,
        ignore_permission_denied=True,
    )  # fmt: skip
    async with aclosing(bursts):
        async for burst in bursts:  # an empty one after each TICK_MS; changes during a run are in the next one
            while embedding.failed:
                yield embedding.failed.pop(0)
            # The identity is compared each time: a root that was replaced needs a new watch.
            if _identity(workspace.root) != identity:
                return
            watched = [Path(path) for _, path in burst if _is_watched(base, path, only)]
            is_more_than_files = any(path.name in IGNORE_FILES or path.is_dir() for path in watched)
            changes.add([path.relative_to(base).as_posix() for path in watched], whole=is_more_than_files)
            # In the middle of a checkout half of the files are old.
            if changes.is_empty or (_is_locked(workspace.root) and time.monotonic() - changes.since < GIT_SECONDS):
                continue
            await embedding.stop()
            paths, started = changes.drain(), time.monotonic()
            failure: KiwiError | None
            try:
                report = await update(paths)
            except KiwiError as error:
                failure = error
                if _identity(workspace.root) != identity:
                    return
            else:
                yield Synced(report, time.monotonic() - started, paths is None)
                failure, paths = report.model_failure, sorted(report.failed)
            embedding.start()
            if failure is None:
                failures = 0
                continue
            changes.add(paths or (), whole=paths is None)
            pause = _pause(failures)
            failures += 1
            yield Retrying(failure, pause)
            await asyncio.sleep(pause)


def _is_watched(base: Path, path: str, only: Collection[str] = ()) -> bool:
    """Whether a change is outside of the folders that are never indexed.

    Called for thousands of changes in a row, so it only compares names and reads no patterns.
    """
    steps = path[len(str(base)) + 1 :].replace(os.sep, "/").split("/")
    is_named = not only or steps[0] in only or (len(steps) == 1 and steps[0].endswith(_TEXTS))
    return bool(steps[0]) and is_named and not any(step in NEVER or step in _NOISY for step in steps)


def _is_locked(root: Path) -> bool:
    """Whether git is changing the working tree."""
    return ((git_folder(root) or root / ".git") / "index.lock").exists()


def _identity(root: Path) -> tuple[int, int] | None:
    """Return device and inode of the folder at the root; None when there is none."""
    try:
        entry = root.stat()
    except OSError:
        return None
    return (entry.st_dev, entry.st_ino) if root.is_dir() else None
