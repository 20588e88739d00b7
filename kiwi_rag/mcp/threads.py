"""The server's threads: those of a job are its own, so that one that hangs takes none from the calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

_Result = TypeVar("_Result")

OWN: ContextVar[set[Future[Any]] | None] = ContextVar("own", default=None)
"""In a job: its calls in threads that have not ended. A cancelled call's thread goes on, and nothing can stop it."""


class Threads(ThreadPoolExecutor):
    """A pool in which a job's calls get threads beside the pool, which do not keep the process from ending."""

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Run a call: in the pool, or beside it where `OWN` is set."""
        own = OWN.get()
        if own is None:
            return super().submit(fn, *args, **kwargs)
        # Whoever asked may cancel its future at any time; the thread's end is told by another, which nobody cancels.
        future: Future[_Result] = Future()
        ended: Future[None] = Future()
        own.add(ended)
        ended.add_done_callback(own.discard)
        call = partial(fn, *args, **kwargs)
        threading.Thread(target=_run, args=(call, future, ended), name="kiwi-job", daemon=True).start()
        return future


def install() -> None:
    """Let the running event loop use such a pool, if it does not yet."""
    loop: Any = asyncio.get_running_loop()
    if not isinstance(getattr(loop, "_default_executor", None), Threads):
        loop.set_default_executor(Threads(thread_name_prefix="asyncio"))


def _run(call: Callable[[], _Result], future: Future[_Result], ended: Future[None]) -> None:
    try:
        if future.set_running_or_notify_cancel():
            future.set_result(call())
    except BaseException as error:  # noqa: BLE001  # whoever waits gets it, as from any executor
        future.set_exception(error)
    finally:
        ended.set_result(None)
