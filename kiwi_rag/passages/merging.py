"""Tiny sections of a document share a passage with a neighbour under a common heading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from kiwi_rag.model import Section
from kiwi_rag.passages.cutting import SIZE
from kiwi_rag.passages.tokens import code

TINY = 100
_TOKENS = 190


@dataclass(frozen=True, slots=True)
class _Group:
    """Sections that become one: kind and heading of the whole, its first section and its characters.

    ``tokens`` are its word pieces, 0 until somebody asks; ``bare`` says that it is headings and nothing else.
    """

    kind: str
    heading: tuple[str, ...]
    first: Section
    end_line: int
    size: int
    tokens: int = 0
    bare: bool = False

    def counted(self) -> int:
        """Return about how many word pieces it has."""
        return self.tokens or code.count(self.first.text)


def merged(sections: Sequence[Section], lines: Sequence[str]) -> Iterator[Section]:
    """Yield the sections, those under ``TINY`` characters joined to a neighbour while both fit into a passage.

    A tiny section joins the neighbour with which it shares more of its headings, the one before it where that is
    equal. A heading with nothing below it but deeper ones joins the first of these, whatever its size. A joined
    section has the kind of its larger part, and the headings that its parts have in common, or the larger part's where
    one path begins the other. `lines` are the document's.
    """
    current: _Group | None = None
    for section, following in zip(sections, (*sections[1:], None), strict=False):
        size, bare = len(section.text), _is_bare(section)
        group = _Group(section.kind, section.heading, section, section.end_line, size, bare=bare)
        if current and _joins(current, group, following):
            current = _joined(current, group)
            continue
        if current:
            yield _section(current, lines)
        current = group
    if current:
        yield _section(current, lines)


def _joins(first: _Group, second: _Group, following: Section | None) -> bool:
    apart = second.first.start_line <= first.end_line  # pieces of one long line
    if not apart and first.bare and second.heading[: len(first.heading)] == first.heading:
        return True
    if apart or first.size + second.size >= SIZE or min(first.size, second.size) >= TINY:
        return False
    shared = _relation(first.heading, second.heading)
    closer = following and first.size >= TINY and shared < _relation(second.heading, following.heading)
    return shared > 0 and not closer and first.counted() + second.counted() <= _TOKENS


def _is_bare(section: Section) -> bool:
    """Whether it is a heading of Markdown and nothing below it: found by itself, it would answer nothing."""
    text = section.text.strip()
    return bool(section.heading) and text.startswith("#") and "\n" not in text


def _joined(first: _Group, second: _Group) -> _Group:
    larger = first if first.size >= second.size else second
    common = _common(first.heading, second.heading)
    heading = larger.heading if common in (first.heading, second.heading) else common
    size, tokens = first.size + second.size, first.counted() + second.counted()
    bare = first.bare and second.bare
    return replace(
        first, kind=larger.kind, heading=heading, end_line=second.end_line, size=size, tokens=tokens, bare=bare
    )


def _section(group: _Group, lines: Sequence[str]) -> Section:
    if group.end_line == group.first.end_line:
        return group.first
    text = "\n".join(lines[group.first.start_line - 1 : group.end_line])
    return Section(group.kind, text, group.first.start_line, group.end_line, group.heading)


def _relation(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    """Return how closely two sections belong together: 0 not at all, else 1 and the headings they share."""
    common = len(_common(first, second))
    return 1 + common if common or not first or not second else 0


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
