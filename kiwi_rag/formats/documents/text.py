"""Plain text, and files that cannot be read as their own format: one section, which chunking splits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from kiwi_rag.formats.lines import Stretch, flat
from kiwi_rag.formats.outcome import ParsedDocument
from kiwi_rag.model import Finding

_TITLE_AT_MOST = 80


def parse(path: str, text: str) -> ParsedDocument:
    """Return the text as one section. Its title is the first line if that looks like a title, else the file's name."""
    lines = text.split("\n")
    found = flat(lines, [Stretch("text", 1, len(lines))])
    title = _title(found[0].text.split("\n", 1)) if found else ""
    return ParsedDocument("text", title or file_name(path), found)


def malformed(path: str, text: str, format_name: str, why: str, line: int = 0) -> ParsedDocument:
    """Return a text that is not `format_name` as plain text, with a warning."""
    return replace(parse(path, text), title=file_name(path), findings=(warning(path, format_name, why, line),))


def large(path: str, text: str, format_name: str, limit: str) -> ParsedDocument:
    """Return a text that is too large to be read as `format_name` as plain text, with a warning."""
    message = f"the file has over {limit} of {format_name}, so it is indexed as plain text"
    hint = f"split it, or leave it out with a line in .kiwiignore: {path}"
    found = Finding("document.large", message, 0, path, hint, severity="warning")
    return replace(parse(path, text), title=file_name(path), findings=(found,))


def warning(path: str, format_name: str, why: str, line: int = 0) -> Finding:
    """Return the warning that a file is indexed as plain text because it is not `format_name`."""
    message = f"the file is not {format_name}, so it is indexed as plain text: {why}"
    hint = f"correct the file, or leave it out with a line in .kiwiignore: {path}"
    return Finding("document.malformed", message, line, path, hint, severity="warning")


def file_name(path: str) -> str:
    """Return the last part of a path."""
    return PurePosixPath(path).name


def _title(parts: list[str]) -> str:
    """Return the first line where it is short, begins like a title and stands apart from what follows; else empty."""
    first, rest = parts[0].strip(), parts[1] if len(parts) > 1 else ""
    apart = not rest.split("\n", 1)[0].strip(" =-~*#")
    return first if apart and first[:1].isalnum() and len(first) <= _TITLE_AT_MOST else ""
