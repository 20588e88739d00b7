r"""Lines of a text → sections that hold every line that is not blank, each of them once.

Lines end at ``\n`` alone and are counted from 1; ranges are inclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from operator import add

from kiwi_rag.model import Section

_MAX_HEADING = 200


def line_starts(text: str) -> list[int]:
    """Return the offset at which each line begins; ``bisect_right(starts, offset)`` is the line of one, from 1."""
    # A text may have millions of lines, so no Python code runs for each of them.
    return [0, *map(add, accumulate(map(len, text.split("\n")[:-1])), count(1))]


def section(
    lines: Sequence[str], start: int, end: int, heading: tuple[str, ...] = (), kind: str = "body"
) -> Section | None:
    """Return lines `start` to `end` as a section, blank lines at both ends left out; ``None`` if all are blank."""
    while start <= end and not lines[start - 1].strip():
        start += 1
    while end >= start and not lines[end - 1].strip():
        end -= 1
    return Section(kind, "\n".join(lines[start - 1 : end]), start, end, heading) if start <= end else None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lines with a kind and a path of headings; the lines of its `inner` stretches, in order, are not its own."""

    kind: str
    start: int
    end: int
    heading: tuple[str, ...] = ()
    inner: tuple[Stretch, ...] = ()


def one_line(words: str) -> str:
    """Return a title or a heading without line ends, and at most 200 characters."""
    return " ".join(words[: 2 * _MAX_HEADING].split())[:_MAX_HEADING]


def sections(lines: Sequence[str], outer: Stretch) -> tuple[Section, ...]:
    """Return `outer` as sections: its inner stretches, at any depth, and what is left between them as its own.

    A line that two stretches claim goes to the first. What is left without a letter or a digit, such as a closing
    brace, goes to the stretch before it.
    """
    found: list[Stretch] = []
    for stretch in _tiles(outer, outer.start):
        if found and not _has_letter(lines, stretch):
            found[-1] = replace(found[-1], end=stretch.end)
        else:
            found.append(stretch)
    return flat(lines, found)


def flat(lines: Sequence[str], stretches: Iterable[Stretch]) -> tuple[Section, ...]:
    """Return stretches that do not overlap as sections, blank ones left out."""
    found = (section(lines, s.start, s.end, tuple(map(one_line, s.heading)), s.kind) for s in stretches)
    return tuple(each for each in found if each)


def _tiles(outer: Stretch, line: int) -> Iterator[Stretch]:
    """Yield the stretches of `outer` from `line` on, none of them with inner ones, without gaps between them."""
    for inner in outer.inner:
        if inner.end < line:
            continue
        if inner.start > line:
            yield replace(outer, start=line, end=inner.start - 1, inner=())
        yield from _tiles(inner, max(line, inner.start))
        line = inner.end + 1
    if line <= outer.end:
        yield replace(outer, start=line, inner=())


def _has_letter(lines: Sequence[str], stretch: Stretch) -> bool:
    return any(character.isalnum() for line in lines[stretch.start - 1 : stretch.end] for character in line)
