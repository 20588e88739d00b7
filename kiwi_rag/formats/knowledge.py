"""Knowledge: Markdown with metadata in ``---`` front matter or in a leading fenced ``yaml`` block, or without any.

Only a block at the very top counts (signature comments and blank lines may stand above it); YAML further down is
prose. Missing titles and descriptions come from the first heading and the first paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kiwi_rag.formats import markdown
from kiwi_rag.formats.markdown import Heading
from kiwi_rag.formats.outcome import FindingList, MalformedSource, ParseOutcome, outcome_of
from kiwi_rag.formats.yaml_block import parse_yaml
from kiwi_rag.model import Section
from kiwi_rag.model.refs import ItemRef, ItemType

DEFAULT_VERSION = "0.0.0"
MAX_DESCRIPTION = 500
_YAML_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*ya?ml[ \t]*$", re.IGNORECASE)
_VERSION_LINE = re.compile(r"version[ \t]*:[ \t]+(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\s#'\"][^\n#]*))")


@dataclass(frozen=True, slots=True)
class MetadataBlock:
    """Where the metadata stands; the lines include the markers around it."""

    start_line: int
    end_line: int
    text: str


def parse(item_id: str, content: str, path: str = "") -> ParseOutcome:
    """Parse a knowledge entry."""
    found = FindingList.of(path)
    lines = markdown.split_lines(content)
    block = metadata_block(lines, found)
    try:
        raw = parse_yaml(block.text) if block else {}
    except MalformedSource as error:
        found.add_malformed(error, block.start_line if block else 0)
        return ParseOutcome(None, tuple(found.found))
    start = (block.end_line if block else markdown.signature_lines(lines)) + 1
    outline = markdown.outline(content, block.end_line if block else None)
    title = next((h.text for h in outline.headings if h.text), "")
    words = markdown.first_paragraph(lines, start, outline.blocks)
    metadata = _metadata(raw, title or item_id.rpartition("/")[2], words, item_id, found)
    ref = ItemRef(ItemType.KNOWLEDGE, item_id, _version(raw, block, found))
    sections = _sections(lines, block, start, outline.headings, metadata)
    return outcome_of(ref, content, metadata, sections, found)


def metadata_block(lines: Sequence[str], found: FindingList) -> MetadataBlock | None:
    """Return the metadata block at the top of the file, if there is one."""
    first = _first_line(lines)
    if not first:
        return None
    marker = lines[first - 1].rstrip()
    fence = _YAML_FENCE.fullmatch(marker)
    if marker != "---" and not fence:
        return None
    end = _closing_line(lines, first, (fence[1],) if fence else ("---", "..."))
    if not end:
        hint = f"close it with {fence[1] if fence else '---'}"
        found.warn("form.metadata-unclosed", "the metadata block is never closed and is taken for prose", first, hint)
        return None
    return MetadataBlock(first, end, "\n".join(lines[first : end - 1]))


def version_span(content: str) -> tuple[int, int] | None:
    """Return where the value of the top-level ``version`` key stands in `content`, or ``None``."""
    lines = markdown.split_lines(content)
    block = metadata_block(lines, FindingList.of(""))
    offset = len(content) - len(content.removeprefix("\ufeff"))
    for number, line in enumerate(lines, start=1):
        if block and block.start_line < number < block.end_line and (match := _VERSION_LINE.match(line)):
            group = next(g for g in (1, 2, 3) if match[g] is not None)
            start = offset + match.start(group)
            return start, start + len(match[group].rstrip())
        offset += len(line) + 1
    return None


def _first_line(lines: Sequence[str]) -> int:
    start = markdown.signature_lines(lines)
    return next((n for n in range(start + 1, len(lines) + 1) if lines[n - 1].strip()), 0)


def _closing_line(lines: Sequence[str], first: int, markers: tuple[str, ...]) -> int:
    return next((n for n in range(first + 1, len(lines) + 1) if lines[n - 1].rstrip() in markers), 0)


def _metadata(raw: Mapping[str, Any], title: str, words: str, item_id: str, found: FindingList) -> dict[str, Any]:
    return {
        "name": _string(raw, "name", found) or item_id.rpartition("/")[2],
        "title": _string(raw, "title", found) or title,
        "description": _string(raw, "description", found) or _first_words(words),
        "category": _string(raw, "category", found),
        "author": _string(raw, "author", found),
        "tags": _tags(raw, found),
    }


def _first_words(paragraph: str) -> str:
    text = " ".join(paragraph.split())
    return text if len(text) <= MAX_DESCRIPTION else text[:MAX_DESCRIPTION].rsplit(" ", 1)[0] + " …"


def _string(raw: Mapping[str, Any], key: str, found: FindingList) -> str:
    value = raw.get(key, "")
    if isinstance(value, str):
        return " ".join(value.split())
    found.add("metadata.type", f"the metadata key {key!r} is not text", 0, f"write {key} as one line of text")
    return ""


def _tags(raw: Mapping[str, Any], found: FindingList) -> list[str]:
    value = raw.get("tags", [])
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list) and all(isinstance(tag, str) for tag in value):
        return [" ".join(tag.split()) for tag in value if tag.strip()]
    found.add("metadata.type", "'tags' is not a list of words", 0, "write tags as [one, two]")
    return []


def _version(raw: Mapping[str, Any], block: MetadataBlock | None, found: FindingList) -> str:
    version = _string(raw, "version", found)
    if not version:
        line = block.start_line if block else 0
        message = f"no version is declared; {DEFAULT_VERSION} is assumed"
        found.warn("metadata.version-missing", message, line, 'add version: "1.0.0" to the metadata')
    return version or DEFAULT_VERSION


def _sections(
    lines: Sequence[str],
    block: MetadataBlock | None,
    start: int,
    headings: Sequence[Heading],
    metadata: Mapping[str, Any],
) -> tuple[Section, ...]:
    body = markdown.sections(lines, start, len(lines), headings)
    first = block.start_line if block else min(start, len(lines))
    last = block.end_line if block else first
    return Section("summary", _summary(metadata), first, last), *body


def _summary(metadata: Mapping[str, Any]) -> str:
    """Compose the text that knowledge is found by: title, description, tags."""
    parts = [metadata["title"], metadata["description"]]
    parts += [f"Category: {metadata['category']}"] if metadata["category"] else []
    parts += [f"Tags: {', '.join(metadata['tags'])}"] if metadata["tags"] else []
    return "\n".join(part for part in parts if part)
