"""What all tools of one server share: services that are opened once, and the record of each call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kiwi_rag.errors import KiwiError, NotFound, Refused, StoreBusy, UsageError
from kiwi_rag.mcp.jobs import STEP_SECONDS, Jobs, ReportProgress
from kiwi_rag.services import Services
from kiwi_rag.services.library import Libraries
from kiwi_rag.services.memory import Memory
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.telemetry import begin_run, span

_LOG = logging.getLogger(__name__)
_USED_IN_THREADS = ("cryptography.hazmat.primitives.asymmetric.ed25519", "kiwi_rag.registry.server", "rfc8785")


def import_what_threads_use() -> None:
    """Import the modules that calls would import in threads, before there is more than one thread.

    Two threads that import modules of one package at the same time can wait for each other's import lock: importing a
    package imports its modules, and importing a module first imports the package. Python then fails one of the imports.
    """
    for name in _USED_IN_THREADS:
        import_module(name)


async def load_services(app: Services) -> Sequence[str]:
    """Load the model and open the local tiers; return the errors, which the first call that needs one raises again."""
    problems = []
    for tier in ("", *app.source_names("local")):
        try:
            await (app.local(tier).store.statistics(["ready"]) if tier else app.embed.query("ready"))
        except Exception as error:  # noqa: BLE001  # from any library
            problems.append(error.loggable_message if isinstance(error, KiwiError) else type(error).__name__)
    return problems


class ServerContext:
    """The services that the calls of one server share.

    Parameters
    ----------
    app
        What the calls use; the caller closes it.
    allow_write
        Whether the server offers tools that change something.

    Attributes
    ----------
    workspace, libraries, memory, user_memory
        The workspace of this server's folder, the user's libraries, the memory of this project, or of the user where
        there is no project, and that of the user.
    writing
        Held by a call that writes.
    jobs
        The long work that calls have started.
    toolsets
        The names of those that the server offers.
    """

    def __init__(self, app: Services, *, allow_write: bool = False) -> None:
        self.app, self.allow_write = app, allow_write
        self.workspace, self.libraries, self.memory = Workspace(app), Libraries(app), Memory(app)
        self.user_memory = self.memory if self.memory.is_of_user else Memory(app, of_user=True)
        self.writing, self.jobs = asyncio.Lock(), Jobs()
        self.toolsets: tuple[str, ...] = ()
        self._warming: asyncio.Task[Sequence[str]] | None = None

    def warm(self) -> asyncio.Task[Sequence[str]]:
        """Start loading the model and opening the local tiers, once; the result are the errors, as texts."""
        self._warming = self._warming or asyncio.create_task(load_services(self.app))
        return self._warming

    async def wait_until_ready(self, report: ReportProgress) -> None:
        """Wait until the model is loaded; report every second that it is loading."""
        warming, started = self.warm(), time.monotonic()
        while not warming.done():
            await report(f"loading the embedding model ({time.monotonic() - started:.0f} s)")
            await asyncio.wait([warming], timeout=STEP_SECONDS)

    async def aclose(self) -> None:
        """Stop all jobs, close what was opened and stop loading."""
        await self.jobs.close()
        await self.memory.close()
        await self.user_memory.close()
        await self.libraries.close()
        await self.workspace.close()
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)


def require_idle(context: ServerContext) -> None:
    """Raise `StoreBusy` while a job is running."""
    if running := context.jobs.running:
        raise StoreBusy(f"a job is running: {running.name}", hint="wait for its end, or stop it on the page Indexing")


@dataclass(slots=True)
class Call:
    """The outcome of a call: ``ok``, ``partly`` (a tier failed or a hit was refused), ``failed`` or ``cancelled``.

    ``problem`` describes a fault of the server. It contains nothing of the call's arguments, as it is logged.
    """

    outcome: str = "ok"
    code: str = ""
    problem: str = ""

    def record_answer(self, data: Mapping[str, Any]) -> None:
        """Record whether an answer is complete."""
        codes = {row["tier"]: row["error"]["code"] for row in data.get("tiers", ()) if row.get("error")}
        self.outcome = "ok" if data.get("complete", True) else "partly"
        self.code = next(iter(codes.values()), "")
        self.problem = ", ".join(f"{tier}: {code}" for tier, code in codes.items())

    def record_error(self, error: BaseException) -> None:
        """Record an error; its message only if it cannot contain arguments of the call."""
        self.outcome = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
        self.code = error.code if isinstance(error, KiwiError) else type(error).__name__
        if isinstance(error, KiwiError):
            self.problem = "" if isinstance(error, UsageError | Refused | NotFound) else error.loggable_message
        elif isinstance(error, Exception):
            self.problem = "an error that Kiwi did not expect"


@contextmanager
def trace_call(tool: str) -> Iterator[Call]:
    """Trace and log a call of `tool`; the name is empty for a tool that does not exist."""
    call, started = Call(), time.monotonic()
    begin_run(f"kiwi mcp {tool}".rstrip())
    with span("kiwi.tool", tool=tool) as note:
        try:
            yield call
        except BaseException as error:
            call.record_error(error)
            raise
        finally:
            note(outcome=call.outcome)
            milliseconds = round((time.monotonic() - started) * 1000, 1)
            facts = {"tool": tool, "milliseconds": milliseconds, "outcome": call.outcome, "code": call.code}
            _LOG.log(logging.ERROR if call.problem else logging.INFO, call.problem or "call", extra=facts)
