"""What every shown text goes through: nothing in it is obeyed by a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

Style = Callable[[str, str], str]
"""Called with a text and what it is (``id``, ``ok``, ``dim``, ``bad``); returns what a terminal should show."""


def plain(text: str, _role: str) -> str:
    """Style nothing."""
    return text


def safe(text: str) -> str:
    """Return `text` with control and direction-changing characters replaced, so that no terminal obeys it."""
    return _CONTROL.sub("�", text)


def json_text(value: Any, indent: int | None = 2) -> str:
    """Return `value` as JSON, with the characters that a terminal would obey escaped; None indents nothing."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
