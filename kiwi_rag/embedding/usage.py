"""What remote embedding costs: one JSON line a call, appended whole, by any number of processes.

A line holds counts, seconds, money and names: no text, no key, and of the server host and port alone. A full file is
moved aside and numbered, as ``usage.jsonl.1`` and on; the oldest is dropped.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from kiwi_rag.embedding.prices import list_prices

_log = logging.getLogger(__name__)

MAX_BYTES = 4 << 20
"""Size of a file from which it is moved aside: about 20,000 calls."""
OLDER_FILES = 4
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """One call of a remote provider.

    ``tokens`` is what the server counted, None where it did not say; ``seconds`` includes retries; ``outcome`` is
    ``ok``, or the failure's code with the HTTP status if there was one; ``server`` is host and port.
    """

    provider: str
    model: str
    texts: int
    tokens: int | None
    seconds: float
    outcome: str = "ok"
    server: str = ""


class UsageLog:
    """A JSON Lines file of remote calls.

    Parameters
    ----------
    path
        The file; made with its folder at the first call.
    prices
        US dollars a million tokens by model name, over the list prices. Ollama's models cost nothing unless named here.
    max_bytes
        Size above which the file is moved aside.
    """

    def __init__(self, path: Path, prices: Mapping[str, float] | None = None, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._prices = prices or {}
        self._max_bytes = max_bytes

    def record(self, call: RemoteCall) -> None:
        """Append `call` with its time and cost; ``cost_usd`` is null where price or tokens are unknown.

        One ``write`` to a file opened for appending, so that lines of several processes never mix. A log that
        cannot be written is a warning, not an error: the vectors are there and paid for.
        """
        entry = {"at": datetime.now(UTC).isoformat(), **asdict(call), "cost_usd": self.cost(call)}
        line = (json.dumps(entry) + "\n").encode()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._make_room(len(line))
            descriptor = os.open(self._path, _APPEND, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            _log.warning("the usage log %s cannot be written: %s", self._path, error)

    def cost(self, call: RemoteCall) -> float | None:
        """Return what `call` cost in US dollars, None where that is not known."""
        price = self._prices.get(call.model)
        if price is None:
            price = 0.0 if call.provider == "ollama" else list_prices().get(call.model)
        if price == 0.0:
            return 0.0
        return None if price is None or call.tokens is None else price * call.tokens / 1e6

    def _make_room(self, needed: int) -> None:
        if self._size() + needed <= self._max_bytes:
            return
        with _locked(self._path.with_name(self._path.name + ".lock")):
            if self._size() + needed > self._max_bytes:  # whoever held the lock before may have moved it
                _move_aside(self._path)

    def _size(self) -> int:
        try:
            return self._path.lstat().st_size
        except FileNotFoundError:
            return 0


def files(path: Path) -> Iterator[Path]:
    """Yield the files that the log at `path` may have, the newest first."""
    return (_numbered(path, number) for number in range(OLDER_FILES + 1))


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


def _move_aside(path: Path) -> None:
    for number in range(OLDER_FILES - 1, -1, -1):
        if (older := _numbered(path, number)).exists():
            older.replace(_numbered(path, number + 1))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
