"""A workspace's files → sections with true line ranges. One module a format; what a file is, its content decides.

Parsing never raises for bad content: what cannot be read as its format becomes plain text, with a warning.

| file type | kinds of section |
| --- | --- |
| markdown | section, front-matter |
| adr | context, drivers, options, decision, consequences, section |
| openapi | info, endpoint, schema, definition |
| asyncapi | info, channel, message, schema, definition |
| yaml, json | definition |
| java | class, method, field |
| python | module, class, function |
| plantuml | diagram |
| text | text |
"""

from __future__ import annotations

from dataclasses import dataclass

from kiwi_rag.model import Finding, Section

FILE_TYPES = ("markdown", "adr", "openapi", "asyncapi", "yaml", "json", "java", "python", "plantuml", "text")


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """What a format makes of a text.

    ``sections`` stand in the order of the file and do not overlap; every line that is not blank is in one of them. The
    text of a section is that of its lines, joined by line feeds, unless several sections share one long line.
    ``service`` and ``domain`` are what the content itself says, empty where it says nothing.
    """

    file_type: str
    title: str
    sections: tuple[Section, ...]
    service: str = ""
    domain: str = ""
    findings: tuple[Finding, ...] = ()


def parse(path: str, text: str) -> ParsedDocument:
    """Return what the format of a text makes of it."""
    lines = text.split("\n")
    return ParsedDocument("text", path, (Section("text", text, 1, len(lines)),))
