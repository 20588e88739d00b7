"""What remote embedding costs: one JSON line a call, appended whole."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

_log = logging.getLogger(__name__)

PRICES: Mapping[str, float] = {
    "text-embedding-3-small": 0.02,
    "text-embedding-3-large": 0.13,
    "text-embedding-ada-002": 0.10,
}
"""US dollars a million tokens, from OpenAI's price list; a caller's own table adds to it and goes first."""


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """One call of a remote provider.

    ``tokens`` is what the server counted, None where it did not say; ``seconds`` includes retries; ``outcome`` is
    ``ok`` or what went wrong.
    """

    provider: str
    model: str
    texts: int
    tokens: int | None
    seconds: float
    outcome: str = "ok"


class UsageLog:
    """A JSON Lines file of remote calls.

    Parameters
    ----------
    path
        The file; made with its folder at the first call.
    prices
        US dollars a million tokens by model name, over :data:`PRICES`. Ollama's models cost nothing.
    """

    def __init__(self, path: Path, prices: Mapping[str, float] | None = None) -> None:
        self._path = path
        self._prices = {**PRICES, **(prices or {})}

    def record(self, call: RemoteCall) -> None:
        """Append `call` with its time and cost; ``cost_usd`` is null where price or tokens are unknown.

        One ``write`` to a file opened for appending, so that lines of several processes never mix. A log that
        cannot be written is a warning, not an error: the vectors are there and paid for.
        """
        entry = {"at": datetime.now(UTC).isoformat(), **asdict(call), "cost_usd": self.cost(call)}
        line = (json.dumps(entry) + "\n").encode()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            _log.warning("the usage log %s cannot be written: %s", self._path, error)

    def cost(self, call: RemoteCall) -> float | None:
        """Return what `call` cost in US dollars, None where that is not known."""
        if call.provider == "ollama":
            return 0.0
        price = self._prices.get(call.model)
        return None if price is None or call.tokens is None else price * call.tokens / 1e6
