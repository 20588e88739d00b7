"""What all tools of one server share: the app, its stores and its model, opened once and kept fresh."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kiwi_rag.errors import KiwiError, NotFound, Refused, UsageError
from kiwi_rag.mcp.jobs import Jobs
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.telemetry import span

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
    "kiwi_rag.search.verify",
    "kiwi_rag.stores.local",
    "kiwi_rag.validation.manager",
    "kiwi_rag.monitor.pinned_state_file",
    "rfc8785",
)


def import_what_calls_use() -> None:
    """Import the modules that calls use, in one thread and before there are others.

    Two threads that import modules of one package at the same time may each wait for what the other began, and Python
    ends one of the two imports with an error: a package imports its modules, and each of its modules first the package.
    """
    for name in _USED_BY_CALLS:
        import_module(name)


class ServerContext:
    """An `Services` that many calls share.

    Parameters
    ----------
    app
        What the calls use. It is closed by whoever opened it.
    allow_write
        Whether tools that change something are offered.
    """

    def __init__(self, app: Services, *, allow_write: bool = False) -> None:
        self._app = app
        self.allow_write = allow_write
        self._warming: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._workspace: Workspace | None = None
        self.jobs = Jobs()

    @property
    def app(self) -> Services:
        """The app, judging afresh who is trusted: a key that was revoked a moment ago counts no more."""
        self._app.refresh_trust()
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
    async def writing(self) -> AsyncIterator[Services]:
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


_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Call:
    """What came of a call: ``ok``, ``partly`` (a tier failed, or a hit was refused), ``failed`` or ``cancelled``.

    ``problem`` is set where something is wrong on this side: it says what, and nothing of what was asked.
    """

    outcome: str = "ok"
    code: str = ""
    problem: str = ""

    def answered(self, data: Mapping[str, Any]) -> None:
        """Note what an answer says of its own completeness."""
        codes = {row["tier"]: row["error"]["code"] for row in data.get("tiers", ()) if row.get("error")}
        self.outcome = "ok" if data.get("complete", True) else "partly"
        self.code = next(iter(codes.values()), "")
        self.problem = ", ".join(f"{tier}: {code}" for tier, code in codes.items())

    def raised(self, error: BaseException) -> None:
        """Note an error; its message only where it cannot be about what was asked."""
        told = error if isinstance(error, KiwiError) else error.__cause__
        self.outcome = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
        self.code = told.code if isinstance(told, KiwiError) else type(error).__name__
        if isinstance(told, KiwiError):
            self.problem = "" if isinstance(told, UsageError | Refused | NotFound) else told.loggable_message
        elif isinstance(error, Exception):
            self.problem = "an error that Kiwi did not expect"


@contextmanager
def trace_call(tool: str) -> Iterator[Call]:
    """Trace and log a call of `tool`; an empty name stands for one that there is not."""
    call, started = Call(), time.monotonic()
    with span("kiwi.tool", tool=tool) as note:
        try:
            yield call
        except BaseException as error:
            call.raised(error)
            raise
        finally:
            note(outcome=call.outcome)
            _log(tool, call, time.monotonic() - started)


def _log(tool: str, call: Call, seconds: float) -> None:
    facts = {"tool": tool, "milliseconds": round(seconds * 1000, 1), "outcome": call.outcome, "code": call.code}
    _LOG.log(logging.ERROR if call.problem else logging.INFO, call.problem or "call", extra=facts)
