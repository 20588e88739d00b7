"""Where the lines of a text begin."""

from __future__ import annotations

import re


def line_starts(text: str) -> list[int]:
    """Return the offset at which each line begins; ``bisect_right(starts, offset)`` is the line of one, from 1."""
    return [0, *(match.end() for match in re.finditer("\n", text))]
