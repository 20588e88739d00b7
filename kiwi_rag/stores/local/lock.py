"""One writer a tier: an advisory file lock that dies with its process, and a note of who holds it."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kiwi_rag.errors import StoreBusy
from kiwi_rag.storage.locks import acquire_lock

WAIT_SECONDS = 4.0


class WriterLock:
    """The writer's lock of one tier folder; counted, so that one store may take it again.

    The lock itself is the operating system's, so it is gone the moment its process is. ``writer.json`` is only a
    note for whoever has to wait.
    """

    def __init__(self, folder: Path, wait_seconds: float = WAIT_SECONDS) -> None:
        self._path = folder / "writer.lock"
        self._wait_seconds = wait_seconds
        self._held = ExitStack()
        self._note = folder / "writer.json"
        self._depth = 0
        self._mutex = threading.Lock()

    @property
    def held(self) -> bool:
        """Whether this store holds the lock now."""
        return self._depth > 0

    def acquire(self) -> None:
        """Take the lock, or count one more holder in this store. Blocks for a few seconds at most.

        Raises
        ------
        StoreBusy
            Naming the process that holds it.
        """
        with self._mutex:
            if not self._depth:
                self._take()
            self._depth += 1

    def release(self) -> None:
        """Give back what one `acquire` took."""
        with self._mutex:
            self._depth -= 1
            if not self._depth:
                self._note.unlink(missing_ok=True)
                self._held.close()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take(self) -> None:
        self._held.enter_context(acquire_lock(self._path, self._wait_seconds, self._busy))
        self._note.write_text(json.dumps(_me()), encoding="utf-8")

    def _busy(self) -> StoreBusy:
        return StoreBusy(
            f"another process is writing to {self._path.parent}: {self._holder()}",
            hint="wait for it to end, or stop it; searching works meanwhile",
        )

    def _holder(self) -> str:
        try:
            note: dict[str, Any] = json.loads(self._note.read_text(encoding="utf-8"))
            return f"pid {note['pid']} on {note['host']} since {note['since']}: {note['command']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "it has not said who it is"


def _me() -> dict[str, object]:
    command = " ".join([Path(sys.argv[0]).name or "python", *sys.argv[1:]])[:200]
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "command": command, "host": socket.gethostname(), "since": since}
