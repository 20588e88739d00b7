r"""A section's text, cut at line ends; inside of a line only where the line alone is too long.

Sizes: about ``SIZE`` characters, ``OVERLAP`` of them repeated from the passage before, but a text of up to ``WHOLE``
characters stays whole; and never more word pieces than the model reads. Offsets go into the section's text, lines end
at ``\n`` alone. Everything looks at one passage's width at a time, so a section costs time in proportion to its
length, whether it is one line of megabytes or a million short ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kiwi_rag.passages.chunker import TextChunker, first_break, last_break
from kiwi_rag.passages.tokens import Estimate

SIZE = 1_000
OVERLAP = 200
WHOLE = 1_500
_LINE_ENDS = ("\n\n", ".\n", "}\n", "\n")
_LINE_STARTS = ("\n\n", "\n")
_BLANK_START = re.compile(r"(?:[^\S\n]*+\n)++")


@dataclass(frozen=True, slots=True)
class Limit:
    """How much a passage may hold: `tokens` word pieces as `estimate` counts them, and the characters above."""

    estimate: Estimate
    tokens: int

    def reach(self, text: str, start: int, size: int = SIZE) -> int:
        """Return how far a passage of at most `size` characters may go that begins at `start`."""
        return self.estimate.reach(text, start, start + size, self.tokens)

    def holds(self, text: str, start: int, end: int) -> bool:
        """Say whether `text` from `start` to `end` may stay whole."""
        return end - start <= WHOLE and self.reach(text, start, end - start) >= end


def cut(text: str, limit: Limit) -> Iterator[tuple[int, int]]:
    """Yield where each passage of `text` starts and ends: whole lines, or a part of one line that is too long.

    `text` does not end in blank lines. A span may: `trimmed` takes them off.
    """
    start = done = 0
    while done < len(text):
        if limit.holds(text, start, len(text)):
            yield start, len(text)
            return
        end = _line_end(text, start, done, limit)
        if end:
            if not text[done:end].isspace():
                yield start, end
            start, done = _resumed(text, start, end), end
        elif start < done:  # the next line does not fit beside what would be repeated
            start = done
        else:
            yield from _within_line(text, start, limit)
            start = done = _after_line(text, start)


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without the blank lines at both of its ends; an empty one if all of its lines are blank."""
    blank = _BLANK_START.match(text, start, end)
    start = blank.end() if blank else start
    filled = start + len(text[start:end].rstrip())
    line_end = text.find("\n", filled, end)
    return start, (end if line_end < 0 else line_end) if filled > start else start


def _line_end(text: str, start: int, done: int, limit: Limit) -> int:
    """Return the best line end, beyond `done`, of the passage that begins at `start`; 0 if no whole line fits."""
    reach = min(limit.reach(text, start) + 1, len(text))
    best = last_break(text, _LINE_ENDS, max(start + (reach - start) // 2, done), reach)
    return best or last_break(text, ("\n",), max(start, done), reach)


def _resumed(text: str, start: int, end: int) -> int:
    """Return the start of the line from which on the next passage repeats that from `start` to `end`."""
    low = end - min(OVERLAP, (end - start) // 5)
    return first_break(text, _LINE_STARTS, low, end) or end


def _within_line(text: str, start: int, limit: Limit) -> Iterator[tuple[int, int]]:
    """Yield the parts of the line at `start`: all of it where it may stay whole, pieces without outer spaces else."""
    end = _after_line(text, start)
    if limit.holds(text, start, end):
        yield start, end
        return
    line = text[start:end]
    for first, last in TextChunker(SIZE, OVERLAP, reach=limit.reach).spans(line):
        words = line[first:last].strip()
        if words:
            begin = start + line.index(words[0], first)
            yield begin, begin + len(words)


def _after_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end + 1
