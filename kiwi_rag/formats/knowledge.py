"""Knowledge: Markdown with metadata at its top (`kiwi_rag.formats.front_matter`), or without any.

Missing titles and descriptions come from the first heading and the first paragraph.
"""

from __future__ import annotations

from typing import Any

from kiwi_rag.formats import markdown
from kiwi_rag.formats.front_matter import Metadata, front_matter, values
from kiwi_rag.formats.outcome import FindingList, ItemParts, summary_of
from kiwi_rag.model import Section

MAX_DESCRIPTION = 500


def parse(item_id: str, content: str, found: FindingList) -> ItemParts:
    """Parse a knowledge entry."""
    lines = markdown.split_lines(content)
    block = front_matter(content, found)
    outline = markdown.outline(content, block.end_line if block else None)
    start = (block.end_line if block else markdown.signature_lines(lines)) + 1
    raw = Metadata(found, values(block.root()) if block else {})
    name = item_id.rpartition("/")[2]
    title = next((heading.text for heading in outline.headings if heading.text), name)
    metadata: dict[str, Any] = {
        "name": raw.text("name") or name,
        "title": raw.text("title") or title,
        "description": raw.text("description") or _first_words(markdown.first_paragraph(lines, start, outline.blocks)),
        "category": raw.text("category"),
        "author": raw.text("author"),
        "tags": raw.words("tags"),
    }
    version = raw.version(block.start_line if block else 0, "to the metadata")
    summary = summary_of(metadata["title"], metadata)
    first, last = (block.start_line, block.end_line) if block else (min(start, len(lines)),) * 2
    body = markdown.sections(lines, start, len(lines), outline.headings)
    return ItemParts(version, metadata, (Section("summary", summary, first, last), *body))


def _first_words(paragraph: str) -> str:
    text = " ".join(paragraph.split())
    return text if len(text) <= MAX_DESCRIPTION else text[:MAX_DESCRIPTION].rsplit(" ", 1)[0] + " …"
