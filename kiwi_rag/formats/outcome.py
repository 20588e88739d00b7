r"""The results of parsing: findings, and sections that hold every line that is not blank, each of them once.

Lines end at ``\n`` alone and are counted from 1; ranges are inclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count
from operator import add
from typing import Any, NamedTuple

from kiwi_rag.model import Finding, Item, RenderedLine, Section, Severity, has_errors

_MAX_HEADING = 200


class ValidationResult(NamedTuple):
    """The result of steps 0 to 6 of the gate, or of parsing alone: the item, and every finding.

    ``item`` is None only if the candidate cannot be parsed; at least one finding is an error then. Of parsing alone,
    ``item.findings`` is otherwise the same tuple.
    """

    item: Item | None
    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        """Whether no finding is an error. Signature and authority are not part of it."""
        return self.item is not None and not has_errors(self.findings)


class MalformedSource(Exception):
    """A file, or a block in it, cannot be read. Never leaves ``kiwi_rag.formats``: it becomes a finding.

    ``line`` is 1-based within the text that was parsed.
    """

    def __init__(self, code: str, message: str, line: int = 1, hint: str = "") -> None:
        self.code, self.message, self.line, self.hint = code, message, line, hint
        super().__init__(message)


@dataclass(slots=True)
class FindingList:
    """Collects findings about one file."""

    path: str = ""
    found: list[Finding] = field(default_factory=list)

    def add(self, code: str, message: str, line: int = 0, hint: str = "", severity: Severity = "error") -> None:
        """Note an error, or a warning."""
        self.found.append(Finding(code, message, line, self.path, hint, severity))

    def warn(self, code: str, message: str, line: int = 0, hint: str = "") -> None:
        """Note a warning."""
        self.add(code, message, line, hint, "warning")


class ItemParts(NamedTuple):
    """What a parser reads of an item: version, metadata and sections."""

    version: str | None
    metadata: dict[str, Any]
    sections: tuple[Section, ...]


def labels(metadata: Mapping[str, Any]) -> list[str]:
    """Return category and tags as the lines of a summary."""
    named = (("Category", metadata["category"]), ("Tags", ", ".join(metadata["tags"])))
    return [f"{name}: {value}" for name, value in named if value]


def clip(text: str, length: int) -> str:
    """Return the words of `text` that fit into `length` characters."""
    return text if len(text) <= length else text[:length].rsplit(" ", 1)[0] + " …"


def summary_of(title: str, metadata: Mapping[str, Any]) -> str:
    """Compose the text that an item is found by: title, description, category and tags."""
    return "\n".join(filter(None, [title, metadata["description"], *labels(metadata)]))


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A parsed document.

    ``sections`` stand in the order of the file and do not overlap; every line that is not blank is in one of them. The
    text of a section is that of its lines, joined by line feeds, unless several sections share one long line.
    ``service`` and ``domain`` are those that the content names; `parse` takes a service that the content does not
    name from the path (`kiwi_rag.formats.documents.service_of`), and a title from the file's name.

    Readers of a rendered format (HTML, reStructuredText, AsciiDoc, MDX, notebooks) do not see the lines of the file.
    Then ``rendered`` holds those that they see, each with the line of the file that it is from, sections count these
    lines instead, and all else above is true of them: every rendered line that is not blank is in one section.
    """

    file_type: str
    title: str
    sections: tuple[Section, ...]
    service: str = ""
    domain: str = ""
    findings: tuple[Finding, ...] = ()
    rendered: tuple[RenderedLine, ...] | None = None


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


class HeadingPath:
    """Collects where the sections of a file begin, under the path of the headings above them."""

    _DEPTH = 8  # of nested headings, so that a path takes constant time

    def __init__(self) -> None:
        self.cuts: list[tuple[int, tuple[str, ...]]] = [(1, ())]
        self._path: list[tuple[int, str]] = []

    def open(self, level: int, text: str, line: int) -> None:
        """Begin a section at a heading."""
        above = [heading for heading in self._path if heading[0] < level]
        self._set([*above[: self._DEPTH - 1], *([(level, text)] if text.strip() else [])], line)

    def close(self, level: int, line: int) -> None:
        """Begin a section of the heading above `level`, if there is one of that level or below."""
        above = [heading for heading in self._path if heading[0] < level]
        if len(above) < len(self._path):
            self._set(above, line)

    def title(self) -> str:
        """Return the first heading."""
        return next((one_line(heading[0]) for _, heading in self.cuts if heading), "")

    def document(self, form: str, title: str, rendered: Sequence[RenderedLine]) -> ParsedDocument:
        """Return a document of these lines, divided into sections."""
        ends = [*(line - 1 for line, _ in self.cuts[1:]), len(rendered)]
        cuts = zip(self.cuts, ends, strict=True)
        found = (Stretch("section", line, end, heading) for (line, heading), end in cuts)
        texts = [line.text for line in rendered]
        return ParsedDocument(form, title or self.title(), flat(texts, found), rendered=tuple(rendered))

    def _set(self, path: list[tuple[int, str]], line: int) -> None:
        self._path = path
        self.cuts.append((line, tuple(text for _, text in path)))


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
