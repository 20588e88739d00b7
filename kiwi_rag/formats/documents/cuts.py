"""Where the sections of YAML and JSON begin: for each top-level key, and for each record of a long list or mapping.

Capabilities, tickets, events, compose files, manifests: whatever has keys. Short neighbours (``name``, ``version``)
share a section, for a line alone says little. All lines up to the next beginning belong to a section, so none is lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kiwi_rag.formats.lines import line_starts
from kiwi_rag.formats.nodes import Node
from kiwi_rag.model import Section

LONG_LINE = 400
MAX_NAME = 200
# What may stand between the start of a line and an entry without being text of the entry before it.
_SIGNS = " \t-?,[]{}"
LONG_VALUE = 1_000
LONG_RECORD = 4_000
_SHORT = 80
_LONG_RUN = 800
_NAMES = 20
_IDS = ("id", "key", "code", "name", "title", "slug", "path", "$id")
_TITLES = ("title", "name", "summary", "label")


@dataclass(frozen=True, slots=True)
class Cut:
    """A section begins at ``offset`` (characters from 0)."""

    offset: int
    kind: str
    heading: tuple[str, ...]


def named(text: str) -> str:
    """Return `text` as one line that fits into a heading."""
    line = " ".join(text[: 2 * MAX_NAME].split())
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"


def starting_at(cuts: Sequence[Cut], offset: int) -> list[Cut]:
    """Return `cuts` with the first one moved to `offset`: a parent's key goes with its first entry."""
    return [Cut(offset, cut.kind, cut.heading) if index == 0 else cut for index, cut in enumerate(cuts)]


def sections_of(text: str, cuts: Sequence[Cut]) -> tuple[Section, ...]:
    """Return the sections that `cuts`, in order, make of `text`; what precedes the first cut belongs to it.

    A section has whole lines, without blank ones at both ends. Entries that share a line share a section as long as the
    line is short; one of `LONG_LINE` characters and more is cut within, so that a minified file has sections, too.
    """
    if not cuts:
        return ()
    page = _Page(text)
    begun = page.begin(cuts)
    ends = [offset for offset, _ in begun[1:]] + [len(text)]
    begins = [0, *ends[:-1]]
    pieces = zip(begins, ends, (cut for _, cut in begun), strict=True)
    found = (page.section(begin, end, cut) for begin, end, cut in pieces)
    return tuple(section for section in found if section)


class _Page:
    """A text and where its lines start."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = line_starts(text)

    def begin(self, cuts: Iterable[Cut]) -> list[tuple[int, Cut]]:
        """Return where each section really begins: at its line if that is its own, within it if the line is long."""
        found: list[tuple[int, Cut]] = []
        taken = -1
        for cut in cuts:
            line = self._line(cut.offset)
            if line > taken and self._opens_line(line, cut.offset):
                found.append((self.starts[self._lifted(line, cut.offset, taken)], cut))
            elif not found or (self._is_long(line) and cut.offset > found[-1][0]):
                found.append((cut.offset, cut))
            taken = max(taken, line)
        return found

    def section(self, begin: int, end: int, cut: Cut) -> Section | None:
        """Return what stands between two offsets, without blank lines at both ends; ``None`` if all are blank."""
        lines = self.text[begin:end].split("\n")
        first, last = 0, len(lines)
        while first < last and not lines[first].strip():
            first += 1
        while last > first and not lines[last - 1].strip():
            last -= 1
        if first == last:
            return None
        number = self._line(begin) + 1
        return Section(cut.kind, "\n".join(lines[first:last]), number + first, number + last - 1, cut.heading)

    def _line(self, offset: int) -> int:
        return bisect_right(self.starts, offset) - 1

    def _is_long(self, line: int) -> bool:
        end = self.starts[line + 1] if line + 1 < len(self.starts) else len(self.text)
        return end - self.starts[line] >= LONG_LINE

    def _opens_line(self, line: int, offset: int) -> bool:
        return not self.text[self.starts[line] : offset].strip(_SIGNS)

    def _lifted(self, line: int, offset: int, taken: int) -> int:
        """Return the first of the comment lines above an entry that are indented as it is, or a dash of its own."""
        column = offset - self.starts[line]
        while line - 1 > taken and self._leads(line - 1, column):
            line -= 1
        return line

    def _leads(self, line: int, column: int) -> bool:
        start = self.starts[line]
        mark = self.text[start + column : start + column + 1]
        if mark == "#":
            return not self.text[start : start + column].strip(_SIGNS)
        return self.text[start : self.starts[line + 1]].strip() == "-"


def cuts_of(documents: Sequence[Node]) -> list[Cut]:
    """Return where sections begin: by top-level key, and by document where a stream holds several."""
    if len(documents) == 1:
        return _root(documents[0])
    return document_cuts(documents)


def document_cuts(documents: Sequence[Node]) -> list[Cut]:
    """Return the cuts of a stream of documents, each under what it calls itself."""
    return list(_entries(documents, (), LONG_RECORD))


def record_name(node: Node, number: int) -> str:
    """Return what a record calls itself: its id and title, or `number`, its place in the list."""
    if node.kind == "scalar":
        return named(node.text) or str(number)
    kind, name = node.said("kind"), node.said("metadata", "name")
    if kind and name:
        return named(f"{kind} {name}")
    own = next((said for key in _IDS if (said := node.said(key))), "") or str(number)
    title = next((said for key in _TITLES if (said := node.said(key)) and said != own), "")
    return named(f"{own} — {title}" if title else own)


def _root(node: Node) -> list[Cut]:
    cuts = list(_entries(node.children, (), LONG_VALUE))
    return starting_at(cuts, node.anchor) or [Cut(node.anchor, "definition", ())]


def _entries(nodes: Sequence[Node], above: tuple[str, ...], limit: int) -> Iterator[Cut]:
    """Yield the cuts of each entry, one for a run of short ones; an entry longer than `limit` is divided."""
    for number, run in _runs(nodes):
        if len(run) == 1:
            yield from _entry(run[0], (*above, _name(run[0], number)), limit)
        else:
            names = ", ".join(_name(node, number + index) for index, node in enumerate(run[:_NAMES]))
            yield Cut(run[0].anchor, "definition", (*above, named(names)))


def _runs(nodes: Sequence[Node]) -> Iterator[tuple[int, list[Node]]]:
    """Yield entries with the place of the first, from 1: short neighbours together, every other one alone."""
    begun = 0
    for place, node in enumerate(nodes):
        if place == begun:
            continue
        if not (_is_short(node) and _is_short(nodes[begun]) and node.end - nodes[begun].start <= _LONG_RUN):
            yield begun + 1, list(nodes[begun:place])
            begun = place
    if nodes:
        yield begun + 1, list(nodes[begun:])


def _entry(node: Node, path: tuple[str, ...], limit: int) -> list[Cut]:
    if node.end - node.start > limit and _holds_records(node):
        return starting_at(list(_entries(node.children, path, LONG_RECORD)), node.anchor)
    return [Cut(node.anchor, "definition", path)]


def _holds_records(node: Node) -> bool:
    collections = sum(child.is_collection for child in node.children)
    return len(node.children) > 1 and 2 * collections >= len(node.children)


def _is_short(node: Node) -> bool:
    return node.end - node.start <= _SHORT


def _name(node: Node, number: int) -> str:
    return named(node.key) or record_name(node, number)
