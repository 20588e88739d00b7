"""The weights of the fusion: data, in a file beside this module, with how they were obtained."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.model import FusionWeights

MAX_BYTES = 1 << 20
SHOWN = 80
"""Characters of a wrong name or share that an error repeats."""
_HINT = "a file that kiwi eval tune wrote, or shares such as alpha=0.8,first=0.2"


@lru_cache(maxsize=1)
def default_weights() -> FusionWeights:
    """Return the tuned weights; their file says on which queries they were tuned, and what they reached on others."""
    text = resources.files("kiwi_rag.search").joinpath("weights.json").read_text(encoding="utf-8")
    return _weights(json.loads(text)["weights"], FusionWeights(0.0))


def read_weights(given: str) -> FusionWeights:
    """Return weights from a file, or from ``name=share`` pairs over the tuned ones.

    Raises
    ------
    SourceUnreadable
        When the file cannot be read.
    UsageError
        When a name is none of the weights or comes twice, or a share is not one.
    """
    if "=" in given and not os.path.isfile(given):  # noqa: PTH113  # Path.is_file raises for a name that is too long
        return _weights(_pairs(given), default_weights())
    return _weights(_read(Path(given)), FusionWeights(0.0))


def check_weights(weights: FusionWeights) -> FusionWeights:
    """Return weights whose every share is in [0, 1], and whose `first` and `centroid` leave room for each other.

    Raises
    ------
    UsageError
        When they are none.
    """
    for name, share in asdict(weights).items():
        if not 0 <= share <= 1:
            raise UsageError(f"{name} {share:g} is not between 0 and 1", hint=_HINT)
    if weights.first + weights.centroid > 1 + 1e-9:
        raise UsageError("first and centroid are shares of one leg: together they are over 1", hint=_HINT)
    return weights


def _pairs(given: str) -> Mapping[str, object]:
    shares: dict[str, object] = {}
    for part in given.split(","):
        name, _, share = (text.strip() for text in part.partition("="))
        if name in shares:
            raise UsageError(f"{name[:SHOWN]} is given twice", hint=_HINT)
        shares[name] = share
    return shares


def _read(path: Path) -> Mapping[str, object]:
    shown = str(path)[:SHOWN]
    try:
        with path.open(encoding="utf-8") as file:
            document = json.loads(file.read(MAX_BYTES))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error  # without the name, which it would repeat whole
        raise SourceUnreadable(f"cannot read weights from {shown}: {why}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown} is not JSON: {error}", hint=_HINT) from error
    weights = document.get("weights") if isinstance(document, dict) else None
    if not isinstance(weights, dict) or "alpha" not in weights:
        raise UsageError(f"{shown} holds no weights", hint=_HINT)
    return weights


def _weights(named: Mapping[str, object], base: FusionWeights) -> FusionWeights:
    names = [f.name for f in fields(FusionWeights)]
    for name in named:
        if name not in names:
            raise UsageError(f"there is no weight {name[:SHOWN]!r}: they are {', '.join(names)}", hint=_HINT)
    return check_weights(replace(base, **{name: _share(name, share) for name, share in named.items()}))


def _share(name: str, share: object) -> float:
    if not isinstance(share, str | int | float):
        raise UsageError(f"{name} is a {type(share).__name__}, not a number", hint=_HINT)
    try:
        return float(str(share))
    except ValueError as error:
        raise UsageError(f"{name} {str(share)[:SHOWN]!r} is not a number", hint=_HINT) from error
