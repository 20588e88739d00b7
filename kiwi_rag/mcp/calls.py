"""One call of a tool as those who look after the server see it: a span and a line of the log, without its arguments."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kiwi_rag.errors import KiwiError, NotFound, Refused, UsageError
from kiwi_rag.telemetry import span

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
            self.problem = "" if isinstance(told, UsageError | Refused | NotFound) else told.own_words
        elif isinstance(error, Exception):
            self.problem = "an error that Kiwi did not expect"


@contextmanager
def recorded(tool: str) -> Iterator[Call]:
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
