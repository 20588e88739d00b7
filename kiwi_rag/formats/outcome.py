"""The results of parsing, and the exception of a parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kiwi_rag.model import Finding, Item, Section, Severity


@dataclass(frozen=True, slots=True)
class ParseOutcome:
    """The parsed item with all findings.

    ``item`` is None only if no item can be built; ``findings`` then holds at
    least one error. Otherwise ``item.findings`` is the same tuple.
    """

    item: Item | None
    findings: tuple[Finding, ...]


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
    """

    file_type: str
    title: str
    sections: tuple[Section, ...]
    service: str = ""
    domain: str = ""
    findings: tuple[Finding, ...] = ()
