r"""Plain text, cut by a recursive splitter: at the coarsest separator that a chunk of the wanted size holds.

Follows the recursive character splitter that text pipelines commonly use (paragraphs, lines, sentences, words,
characters), but keeps every character: chunks are stretches of the text, separators included, and each begins no
later than the one before ends. Every search here looks at one chunk's width, so the whole is linear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kiwi_rag.errors import UsageError

SEPARATORS = ("\n\n", "\n", ". ", " ", "")
Reach = Callable[[str, int], int]


class TextChunker:
    r"""Cuts text into chunks of at most `chunk_size` characters, which overlap by at most `chunk_overlap`.

    Parameters
    ----------
    chunk_size
        Characters a chunk has at most, at least 1.
    chunk_overlap
        Characters that a chunk repeats at most from the end of the one before; fewer than `chunk_size`.
    separators
        Where to cut, the best place first. A chunk is cut after the last such separator in its second half, and
        begins after the first such in what may be repeated; where there is none, between any two characters.
    reach
        Told a text and an offset, returns how far a chunk from there may go: further than the offset, and no
        further than `chunk_size`. For limits other than characters.

    Raises
    ------
    UsageError
        If the sizes cannot be kept.
    """

    def __init__(
        self,
        chunk_size: int = 1000,
        chunk_overlap: int = 200,
        separators: Sequence[str] = SEPARATORS,
        *,
        reach: Reach | None = None,
    ) -> None:
        if not 0 <= chunk_overlap < chunk_size:
            raise UsageError(
                f"chunks of {chunk_size} characters cannot overlap by {chunk_overlap}",
                hint="choose a size of at least 1 and a smaller overlap",
            )
        self._size, self._overlap = chunk_size, chunk_overlap
        self._separators = tuple(separator for separator in separators if separator)
        self._reach = reach or (lambda _, start: start + chunk_size)

    def split(self, text: str) -> list[str]:
        """Return the chunks of `text` in order; none of an empty text."""
        return [text[start:end] for start, end in self.spans(text)]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where each chunk starts and ends, as offsets into `text`."""
        start = done = 0
        while (limit := self._reach(text, start)) < len(text):
            if limit <= done:  # denser than what came before: no room for the overlap
                start = done
                continue
            low = max(start + (limit - start) // 2, done)
            done = last_break(text, self._separators, low, limit) or limit
            yield start, done
            overlap = self._overlap * (limit - start) // self._size
            low = max(done - overlap, start + 1)
            start = first_break(text, self._separators, low, done) or low
        if start < len(text):
            yield start, len(text)


def last_break(text: str, separators: Sequence[str], low: int, high: int) -> int:
    """Return the end of the last separator that lies in `text` from `low` to `high`, the best kind first; else 0."""
    for separator in separators:
        found = text.rfind(separator, low, high)
        if found >= 0:
            return found + len(separator)
    return 0


def first_break(text: str, separators: Sequence[str], low: int, high: int) -> int:
    """Return the end of the first separator, at `low` or later and before `high`, the best kind first; else 0."""
    for separator in separators:
        found = text.find(separator, max(low - len(separator), 0), high - 1)
        if found >= 0:
            return found + len(separator)
    return 0
