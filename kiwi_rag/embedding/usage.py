"""What remote embedding costs: one JSON line a call, appended whole, by any number of processes.

A line holds counts, seconds, money and names: no text, no key, and of the server host and port alone. A full file is
moved aside and numbered, as ``usage.jsonl.1`` and on; the oldest is dropped.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from kiwi_rag.embedding.prices import list_prices
from kiwi_rag.storage.json_lines import RotatingLines

_log = logging.getLogger(__name__)

MAX_BYTES = 4 << 20
"""Size of a file from which it is moved aside: about 20,000 calls."""
OLDER_FILES = 4


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
        self._lines = usage_lines(path, max_bytes)
        self._prices = prices or {}

    def record(self, call: RemoteCall) -> None:
        """Append `call` with its time and cost; ``cost_usd`` is null where price or tokens are unknown.

        A log that cannot be written is a warning, not an error: the vectors are there and paid for.
        """
        entry = {"at": datetime.now(UTC).isoformat(), **asdict(call), "cost_usd": self.cost(call)}
        line = (json.dumps(entry) + "\n").encode()
        try:
            self._lines.path.parent.mkdir(parents=True, exist_ok=True)
            self._lines.append(line)
        except OSError as error:
            _log.warning("the usage log %s cannot be written: %s", self._lines.path, error)

    def cost(self, call: RemoteCall) -> float | None:
        """Return what `call` cost in US dollars, None where that is not known."""
        price = self._prices.get(call.model)
        if price is None:
            price = 0.0 if call.provider == "ollama" else list_prices().get(call.model)
        if price == 0.0:
            return 0.0
        return None if price is None or call.tokens is None else price * call.tokens / 1e6


def usage_lines(path: Path, max_bytes: int = MAX_BYTES) -> RotatingLines:
    """Return the files of the log at `path`."""
    return RotatingLines(path, max_bytes, OLDER_FILES)
