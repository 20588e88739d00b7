"""Continuations: where an answer that was cut at its budget goes on, in a text that means nothing to the client."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from kiwi_rag.errors import UsageError
from kiwi_rag.model import sha256_hex

_STALE = "call again without continuation"


def continuation(begin: int, of: Mapping[str, Any]) -> str:
    """Return a continuation from position `begin` of the answer to `of`."""
    return base64.urlsafe_b64encode(f"{begin}.{_name(of)}".encode()).decode()


def position(given: str, of: Mapping[str, Any]) -> int:
    """Return where to go on; 0 for no continuation.

    Raises
    ------
    UsageError
        When it is none, or one of another question.
    """
    if not given:
        return 0
    try:
        begin, _, name = base64.urlsafe_b64decode(given.encode()).decode().partition(".")
        number = int(begin)
    except ValueError as error:
        raise UsageError("continuation is not one that this server gave", hint=_STALE) from error
    if name != _name(of) or number < 0:
        raise UsageError("continuation is one of another question, or of a version that is gone", hint=_STALE)
    return number


def _name(of: Mapping[str, Any]) -> str:
    return sha256_hex(json.dumps(of, sort_keys=True, default=str).encode())[:16]
