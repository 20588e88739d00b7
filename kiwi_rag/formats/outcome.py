"""The results of parsing, and the exception of a parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kiwi_rag.model import Finding, Item, Section, Severity
from kiwi_rag.model.refs import ItemRef


@dataclass(frozen=True, slots=True)
class ParseOutcome:
    """The parsed item with all findings.

    ``item`` is None only if no item can be built; ``findings`` then holds at
    least one error. Otherwise ``item.findings`` is the same tuple.
    """

    item: Item | None
    findings: tuple[Finding, ...]


class MalformedSource(Exception):
    """A block cannot be read. Never leaves ``kiwi_rag.formats``: parsers turn it into a finding.

    ``line`` is 1-based within the block that was parsed.
    """

    def __init__(self, code: str, message: str, line: int = 1, hint: str = "") -> None:
        self.code, self.message, self.line, self.hint = code, message, line, hint
        super().__init__(message)


@dataclass(slots=True)
class FindingList:
    """Collects findings about one file."""

    path: str
    found: list[Finding]

    @classmethod
    def of(cls, path: str) -> FindingList:
        """Return an empty list for the file at `path`."""
        return cls(path, [])

    def add(self, code: str, message: str, line: int = 0, hint: str = "", severity: Severity = "error") -> None:
        """Note an error, or a warning."""
        self.found.append(Finding(code, message, line, self.path, hint, severity))

    def warn(self, code: str, message: str, line: int = 0, hint: str = "") -> None:
        """Note a warning."""
        self.add(code, message, line, hint, "warning")

    def add_malformed(self, error: MalformedSource, line_before: int) -> None:
        """Note why a block could not be read; `line_before` lines of the file precede the block."""
        self.add(error.code, error.message, line_before + error.line, error.hint)


def outcome_of(
    ref: ItemRef, content: str, metadata: Mapping[str, Any], sections: tuple[Section, ...], found: FindingList
) -> ParseOutcome:
    """Return the outcome for an item of one file."""
    findings = tuple(found.found)
    files = {ref.main_file: content.encode()}
    return ParseOutcome(Item(ref, files, ref.main_file, metadata, sections, findings), findings)


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A parsed document.

    ``sections`` stand in the order of the file and do not overlap; every line that is not blank is in one of them. The
    text of a section is that of its lines, joined by line feeds, unless several sections share one long line.
    ``service`` and ``domain`` are those that the content names; `parse` takes a service that the content does not
    name from the path (`kiwi_rag.formats.documents.detect.service_of`), and a title from the file's name.
    """

    file_type: str
    title: str
    sections: tuple[Section, ...]
    service: str = ""
    domain: str = ""
    findings: tuple[Finding, ...] = ()
