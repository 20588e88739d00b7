"""The usage log of remote models: one JSON line for each call of embedding or chat, and totals by day.

A line has counts, seconds, costs and names, but no text and no key; of the server only host and port. A full file is
moved aside and numbered, as ``usage.jsonl.1`` and on; the oldest is dropped. List prices are in ``prices.json`` beside
this module, with their source and the day they were read; a setting overrides them.
"""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from kiwi_rag.consent import BYTES_PER_TOKEN, Allow
from kiwi_rag.errors import UsageError
from kiwi_rag.storage.json_lines import RotatingLines
from kiwi_rag.telemetry import current_run

_log = logging.getLogger(__name__)

MAX_BYTES = 4 << 20
"""Size of a file from which it is moved aside: about 20,000 calls."""
OLDER_FILES = 4
_PRICES = Path(__file__).with_name("prices.json")
WRITTEN = " (written)"
"""After the name of a chat model in a table of prices: that of the tokens that it writes."""


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """One call of a remote provider, as a line of the log has it.

    ``texts`` are the texts to embed, or the passages that a chat model read. ``tokens`` is what the server counted of
    them, None where it did not say, ``output_tokens`` of a chat model's reply. ``seconds`` includes retries.
    ``outcome`` is ``ok``, or the failure's code with the HTTP status if there was one; of a chat model's reply also
    ``cut`` and ``stopped``. ``server`` is host and port; ``cost_usd`` is None where that is unknown; ``run`` is the
    command or tool call that needed it, with the time at which that began.
    """

    provider: str
    model: str
    texts: int
    tokens: int | None
    seconds: float
    outcome: str = "ok"
    server: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    cost_usd: float | None = None
    run: str = ""
    output_tokens: int | None = 0


class UsageLog:
    """A JSON Lines file of remote calls.

    Parameters
    ----------
    path
        The file; created with its folder at the first call.
    prices
        US dollars a million tokens by model name, over the list prices. Ollama's models cost nothing unless named here.
    max_bytes
        Size above which the file is moved aside.
    """

    def __init__(self, path: Path, prices: Mapping[str, float] | None = None, max_bytes: int = MAX_BYTES) -> None:
        self._lines = RotatingLines(path, max_bytes, OLDER_FILES)
        self._prices = prices or {}

    def record(self, call: RemoteCall) -> None:
        """Append `call` with its cost, null where price or tokens are unknown.

        A log that cannot be written is a warning, not an error, because the vectors were received and paid for.
        """
        entry = asdict(call) | {"at": call.at.isoformat(), "cost_usd": self.cost(call), "run": current_run()}
        try:
            self._lines.path.parent.mkdir(parents=True, exist_ok=True)
            self._lines.append((json.dumps(entry) + "\n").encode())
        except OSError as error:
            _log.warning("the usage log %s cannot be written: %s", self._lines.path, error)

    def cost(self, call: RemoteCall) -> float | None:
        """Return what `call` cost in US dollars, None if that is unknown."""
        price, written = self._price(call, call.model), self._price(call, call.model + WRITTEN)
        parts = (price, call.tokens), (price if written is None else written, call.output_tokens)
        if price is None or any(price and tokens is None for price, tokens in parts):
            return None
        return sum((price or 0.0) * (tokens or 0) for price, tokens in parts) / 1e6

    def _price(self, call: RemoteCall, name: str) -> float | None:
        return self._prices.get(name, 0.0 if call.provider == "ollama" else _list_prices().get(name))

    def priced(
        self, allow: Allow, provider: str, model: str, output_tokens: int = 0
    ) -> Callable[[str, str, int], None]:
        """Return `allow` with the estimated cost of the bytes that it is called with."""

        def require(host: str, purpose: str, size: int) -> None:
            call = RemoteCall(provider, model, 1, size // BYTES_PER_TOKEN, 0.0, output_tokens=output_tokens)
            allow(host, purpose, size, self.cost(call))

        return require


def parse_prices(text: str, setting: str = "embedding_prices") -> Mapping[str, float]:
    """Return US dollars a million tokens by model name, from ``MODEL=PRICE``, several with commas between.

    Of a chat model it may be ``MODEL=PRICE/PRICE``: the second one, of the tokens that it writes, is under the model's
    name with `WRITTEN`.

    Raises
    ------
    UsageError
        If an entry is not of that form, or a price is no amount of money.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    return {model: price for entry in entries for model, price in _prices(entry, setting)}


def _prices(entry: str, setting: str) -> Iterator[tuple[str, float]]:
    model, _, amounts = (part.strip() for part in entry.rpartition("="))
    for name, amount in zip((model, model + WRITTEN), amounts.split("/", 1), strict=False):
        try:
            price = float(amount)
        except ValueError:
            price = math.nan
        if not (model and 0 <= price < math.inf):
            raise UsageError(f"{setting}: {entry!r} is not MODEL=PRICE", hint="for example my-model=0.02,other=0")
        yield name, price


def _list_prices() -> Mapping[str, float]:
    return dict(json.loads(_PRICES.read_text(encoding="utf-8"))["usd_per_million_tokens"])


def usage_rows(path: Path, since: date | None = None, by: str = "day") -> Sequence[dict[str, Any]]:
    """Return totals of the log at `path` and those moved aside, JSON-ready: of each day (UTC), provider and model.

    With `by` ``run`` they are of each run in place of each day; calls from before runs were recorded have none.
    ``tokens`` and ``cost_usd`` are totals of the known values; ``tokens_unknown`` and ``cost_unknown`` count the calls
    that are not in them. Seconds are of the calls that succeeded, 0 if none did. Lines that are no record of a call,
    such as half a line from a full disk, are skipped.
    """
    calls: dict[tuple[str, str, str], list[RemoteCall]] = defaultdict(list)
    for call in _recorded(path):
        if since is None or call.at.date() >= since:
            group = call.run if by == "run" else call.at.date().isoformat()
            calls[group, call.provider, call.model].append(call)
    return [dict(zip((by, "provider", "model"), key, strict=True)) | _totals(calls[key]) for key in sorted(calls)]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of `values` that `share` of them do not exceed (nearest rank); 0 where there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _totals(calls: Sequence[RemoteCall]) -> dict[str, float]:
    succeeded = [call for call in calls if call.outcome == "ok"]
    seconds = [call.seconds for call in succeeded]
    return {
        "calls": len(calls),
        "texts": sum(call.texts for call in succeeded),
        "tokens": sum((call.tokens or 0) + (call.output_tokens or 0) for call in succeeded),
        "tokens_unknown": sum(call.tokens is None for call in succeeded),
        "cost_usd": sum(call.cost_usd or 0.0 for call in succeeded),
        "cost_unknown": sum(call.cost_usd is None for call in succeeded),
        "p50_seconds": percentile(seconds, 0.5),
        "p95_seconds": percentile(seconds, 0.95),
        "failures": len(calls) - len(succeeded),
    }


def _recorded(path: Path) -> Iterator[RemoteCall]:
    from pydantic import TypeAdapter, ValidationError

    read = TypeAdapter(RemoteCall).validate_json
    for line in (line for data in RotatingLines(path, MAX_BYTES, OLDER_FILES).contents() for line in data.splitlines()):
        with suppress(ValidationError):
            yield read(line, strict=True)
