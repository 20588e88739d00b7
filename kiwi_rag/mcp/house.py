"""What all tools of one server share: the app, its stores and its model, opened once and kept fresh."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module

from kiwi_rag.app import App
from kiwi_rag.app.workspace import Workspace
from kiwi_rag.mcp.jobs import Jobs

STEP_SECONDS = 1.0
"""How often somebody who waits is told that it goes on."""


_USED_BY_CALLS = (
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "jsonschema",
    "kiwi_rag.embedding.factory",
    "kiwi_rag.embedding.onnx",
    "kiwi_rag.formats.directive",
    "kiwi_rag.formats.knowledge",
    "kiwi_rag.formats.script",
    "kiwi_rag.search.lookup",
    "kiwi_rag.stores.local",
    "kiwi_rag.validation.manager",
    "kiwi_rag.witness.memory_file",
    "rfc8785",
)


def import_what_calls_use() -> None:
    """Import the modules that calls use, in one thread and before there are others.

    Two threads that import modules of one package at the same time may each wait for what the other began, and Python
    ends one of the two imports with an error: a package imports its modules, and each of its modules first the package.
    """
    for name in _USED_BY_CALLS:
        import_module(name)


class House:
    """An `App` that many calls share.

    Parameters
    ----------
    app
        What the calls use. It is closed by whoever opened it.
    allow_write
        Whether tools that change something are offered.
    """

    def __init__(self, app: App, *, allow_write: bool = False) -> None:
        self._app = app
        self.allow_write = allow_write
        self._warming: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._workspace: Workspace | None = None
        self.jobs = Jobs()

    @property
    def app(self) -> App:
        """The app, judging afresh who is trusted: a key that was revoked a moment ago counts no more."""
        self._app.judge_anew()
        return self._app

    @property
    def workspace(self) -> Workspace:
        """The workspace that this server stands in, opened once; who is trusted is judged afresh, as for `app`."""
        app = self.app
        if self._workspace is None:
            self._workspace = Workspace(app)
        return self._workspace

    def warm(self) -> None:
        """Begin to load the model and to open the local tiers, once; what fails is told by the call that needs it."""
        self._task()

    async def ready(self, tell: Callable[[str], Awaitable[None]]) -> None:
        """Wait until the model is loaded, telling every second that it is being loaded."""
        warming = self._task()
        started = time.monotonic()
        while not warming.done():
            await tell(f"loading the embedding model ({time.monotonic() - started:.0f} s)")
            await asyncio.wait([warming], timeout=STEP_SECONDS)

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[App]:
        """Lend the app to one writer after the other."""
        async with self._writing:
            yield self.app

    async def close(self) -> None:
        """Stop warming and all jobs, and release the workspace."""
        await self.jobs.close()
        if self._workspace is not None:
            await self._workspace.close()
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)

    def _task(self) -> asyncio.Task[None]:
        self._warming = self._warming or asyncio.create_task(self._warm())
        return self._warming

    async def _warm(self) -> None:
        # Errors are not lost: the first call that needs the model, or a tier, meets them itself.
        with contextlib.suppress(Exception):
            await self._app.embed.query("ready")
        for name in self._app.source_names("local"):
            with contextlib.suppress(Exception):
                await self._app.local(name).store.statistics(["ready"])
