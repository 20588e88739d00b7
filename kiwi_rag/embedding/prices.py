"""What embedding costs: a table of list prices, which a setting overrides.

The table is ``prices.json`` beside this module; it names its source and the day it was read. Prices change: what counts
is the bill.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kiwi_rag.errors import UsageError

_TABLE = Path(__file__).with_name("prices.json")


@cache
def list_prices() -> Mapping[str, float]:
    """Return US dollars a million tokens by model name."""
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    return {model: float(price) for model, price in table["usd_per_million_tokens"].items()}


def source() -> str:
    """Return where the list prices are from, and when they were read."""
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    return f"{table['source']}, read {table['read']}"


def parse_prices(text: str) -> Mapping[str, float]:
    """Return the prices that `text` lists as ``MODEL=PRICE``, several with commas between.

    Raises
    ------
    UsageError
        If an entry is not of that form, or a price is no amount of money.
    """
    return dict(_parse(entry.strip()) for entry in text.split(",") if entry.strip())


def _parse(entry: str) -> tuple[str, float]:
    model, _, amount = (part.strip() for part in entry.rpartition("="))
    try:
        price = float(amount)
    except ValueError:
        price = math.nan
    if not model or not 0 <= price < math.inf:
        raise UsageError(f"embedding_prices: {entry!r} is not MODEL=PRICE", hint="for example my-model=0.02,other=0")
    return model, price
