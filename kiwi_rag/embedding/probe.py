"""Whether two servers serve one model: both embed a fixed text, and the vectors must agree.

The first server's vector is remembered in a file, so that a stand-in can be judged while the first one is down, and so
that a server whose weights were changed behind the model's name is noticed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kiwi_rag.model import sha256_hex
from kiwi_rag.storage.atomic import atomic_write

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

TEXT = "The night shift found the backup by its date, restored 42 tables & went home at 03:15; nobody had noticed."
AGREEMENT = 0.999
"""Cosine from which two vectors are of one model; another precision of the same weights stays above it."""
TRUSTED_SECONDS = 86_400.0
"""How long an agreement counts before it is looked at again."""
_MAX_BYTES = 1 << 20


class ProbeMemory:
    """What a model made of `TEXT`, and which servers agreed to it when.

    Parameters
    ----------
    folder
        Where the file is; made when something is remembered. Trouble with it costs asking again, nothing else.
    identity
        The fingerprint that the servers share, without the vectors' length.
    now
        Seconds since the epoch.
    """

    def __init__(self, folder: Path, identity: str, now: Callable[[], float] = time.time) -> None:
        self.path = folder / f"{sha256_hex(identity.encode())[:16]}.json"
        self._identity = identity
        self._now = now

    def vector(self) -> Vector | None:
        """Return the remembered vector, None where there is none."""
        import numpy as np

        numbers = self._read().get("vector")
        try:
            vector = np.asarray(numbers, dtype=np.float32)
        except (TypeError, ValueError):
            return None
        return vector if vector.ndim == 1 and vector.size and np.isfinite(vector).all() else None

    def agreed_lately(self, server: str) -> bool:
        """Return whether `server` agreed within `TRUSTED_SECONDS`."""
        agreed = self._read().get("agreed")
        at = agreed.get(server) if isinstance(agreed, dict) else None
        return isinstance(at, int | float) and 0 <= self._now() - at < TRUSTED_SECONDS

    def remember(self, vector: Vector, server: str) -> None:
        """Remember what the model made of `TEXT`, and that `server` serves it."""
        agreed = self._read().get("agreed")
        kept = agreed if isinstance(agreed, dict) else {}
        numbers = [round(float(number), 8) for number in vector]
        self._write(
            {"identity": self._identity, "text": TEXT, "vector": numbers, "agreed": {**kept, server: self._now()}}
        )

    def _read(self) -> Mapping[str, Any]:
        try:
            with self.path.open("rb") as file:
                told = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        known = isinstance(told, dict) and told.get("identity") == self._identity and told.get("text") == TEXT
        return told if known else {}

    def _write(self, told: Mapping[str, Any]) -> None:
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write(self.path, json.dumps(told).encode(), durable=False)
