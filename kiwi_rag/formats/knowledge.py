"""Knowledge: Markdown with metadata at its top, or without any; and the metadata of knowledge and of skills.

It stands between lines of ``---``, or in a fenced ``yaml`` block. Only a block at the very top counts: signature
comments and blank lines may stand above it. It is YAML without anchors, aliases, tags or repeated keys, and no scalar
is interpreted: ``version: 1.10`` stays ``"1.10"``, a date stays as written, ``no`` is not false. PyYAML's parser in
Python reads it on every machine, never libyaml, where one is installed: so metadata is the same for signers and
verifiers. Titles and descriptions that are missing come from the first heading and the first paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kiwi_rag.formats import markdown
from kiwi_rag.formats.nodes import Node, YamlReader, refuse
from kiwi_rag.formats.outcome import FindingList, ItemParts, MalformedSource, clip, summary_of
from kiwi_rag.model import Section

DEFAULT_VERSION = "0.0.0"
MAX_BYTES = 16 * 1024
MAX_DEPTH = 6
MAX_NODES = 1_000
_YAML_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*ya?ml[ \t]*$", re.IGNORECASE)
MAX_DESCRIPTION = 500


def parse(item_id: str, content: str, found: FindingList, given: Mapping[str, Any] | None = None) -> ItemParts:
    """Parse a knowledge entry; a key that its metadata lacks has the value in `given`."""
    lines = markdown.split_lines(content)
    block = front_matter(content, found)
    outline = markdown.outline(content, block.end_line if block else None)
    start = (block.end_line if block else markdown.signature_lines(lines)) + 1
    raw = Metadata(found, values(block.root()) if block else {}, given or {})
    name = item_id.rpartition("/")[2]
    paragraph = markdown.first_paragraph(lines, start, outline.blocks)
    title = next((heading.text for heading in outline.headings if heading.text), name)
    metadata: dict[str, Any] = {
        "name": raw.text("name") or name,
        "title": raw.text("title") or title,
        "description": raw.text("description") or clip(paragraph, MAX_DESCRIPTION),
        "category": raw.text("category"),
        "author": raw.text("author"),
        "tags": raw.words("tags"),
    }
    version = raw.version(block.start_line if block else 0, "to the metadata")
    summary = summary_of(metadata["title"], metadata)
    first, last = (block.start_line, block.end_line) if block else (min(start, len(lines)),) * 2
    body = markdown.sections(lines, start, len(lines), outline.headings)
    return ItemParts(version, metadata, (Section("summary", summary, first, last), *body))


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """Where the metadata stands, the markers around it included; ``offset`` is where its ``text`` begins."""

    start_line: int
    end_line: int
    offset: int
    text: str

    def line_of(self, node: Node) -> int:
        """Return the line of the file on which an entry of the metadata begins."""
        return self.start_line + 1 + self.text.count("\n", 0, node.anchor)

    def root(self) -> Node:
        """Return the metadata as nodes, whose offsets are those in ``text``.

        Raises
        ------
        MalformedSource
            If a cap is exceeded, an anchor, alias or tag occurs, a key is repeated, the text is not YAML, or it is not
            a mapping; with the line in the file.
        """
        from yaml import BaseLoader

        try:
            if len(self.text.encode()) > MAX_BYTES:
                message = f"the metadata block has over {MAX_BYTES} bytes"
                refuse(self.text, message, 0, "form.yaml-size", "move text into the body")
            roots = _StrictReader(self.text, BaseLoader, MAX_DEPTH, MAX_BYTES).documents()
            if any(node.kind != "mapping" for node in roots) or len(roots) > 1:
                message = "the metadata block is not one mapping of keys to values"
                refuse(self.text, message, 0, "form.yaml-mapping", "write it as 'key: value' lines")
            return roots[0] if roots else Node("mapping", 0, 0)
        except MalformedSource as error:
            error.line += self.start_line
            if error.code == "form.yaml":
                error.message, error.hint = f"the metadata is not YAML: {error}", "quote values that hold ':' or '#'"
            raise


@dataclass(slots=True)
class Metadata:
    """The values of a metadata block, and those ``given`` for what it does not declare; notes those of a wrong type."""

    found: FindingList
    values: Mapping[str, Any]
    given: Mapping[str, Any] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """Return a value that is text, on one line; empty where there is none."""
        value = self._value(key)
        if isinstance(value, str):
            return " ".join(value.split())
        self.found.add("metadata.type", f"the metadata key {key!r} is not text", 0, f"write {key} as one line of text")
        return ""

    def words(self, key: str, separator: str = ",") -> list[str]:
        """Return a value that is a list of words, or a text with a separator between them."""
        value = self._value(key)
        if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
            return [" ".join(word.split()) for word in value if word.strip()]
        if not isinstance(value, str):
            self.found.add("metadata.type", f"{key!r} is not a list of words", 0, f"write {key} as [one, two]")
            return []
        return [word.strip() for word in value.split(separator) if word.strip()]

    def version(self, line: int, hint: str) -> str:
        """Return the declared version, or `DEFAULT_VERSION` with a warning at `line`."""
        version = self.text("version")
        if not version:
            message = f"no version is declared; {DEFAULT_VERSION} is assumed"
            self.found.warn("metadata.version-missing", message, line, f'add version: "1.0.0" {hint}')
        return version or DEFAULT_VERSION

    def _value(self, key: str) -> Any:
        return self.values.get(key) or self.given.get(key, "")


def front_matter(content: str, found: FindingList) -> FrontMatter | None:
    """Return the metadata block at the top of the file, if there is one."""
    lines = markdown.split_lines(content)
    start = markdown.signature_lines(lines)
    first = next((n for n in range(start + 1, len(lines) + 1) if lines[n - 1].strip()), 0)
    marker = lines[first - 1].rstrip() if first else ""
    fence = _YAML_FENCE.fullmatch(marker)
    if marker != "---" and not fence:
        return None
    closing = (fence[1],) if fence else ("---", "...")
    end = next((n for n in range(first + 1, len(lines) + 1) if lines[n - 1].rstrip() in closing), 0)
    if not end:
        message = "the metadata block is never closed and is taken for prose"
        found.warn("form.metadata-unclosed", message, first, f"close it with {closing[0]}")
        return None
    return FrontMatter(first, end, markdown.line_offset(content, first + 1), "\n".join(lines[first : end - 1]))


def values(node: Node) -> Any:
    """Return what a node says: texts, lists and dictionaries of texts."""
    if node.kind == "mapping":
        return {child.key: values(child) for child in node.children}
    return [values(child) for child in node.children] if node.kind == "sequence" else node.text


class _StrictReader(YamlReader):
    """Refuses each event as it is parsed, before anything is built of it."""

    def events(self, loader: type) -> Iterator[Any]:
        depth = nodes = 0
        event: Any
        for event in super().events(loader):
            opens = isinstance(event, self.opening)
            depth += opens - isinstance(event, self.closing)
            nodes += opens or hasattr(event, "value")
            if getattr(event, "anchor", None):  # of an anchor, and of an alias
                self._refuse(event, "form.yaml-alias", "the metadata has a YAML anchor or alias", "write the value out")
            if getattr(event, "tag", None):
                self._refuse(event, "form.yaml-tag", f"the metadata uses the YAML tag {event.tag!r}", "remove the tag")
            if depth > MAX_DEPTH or nodes > MAX_NODES:
                message = f"the metadata nests deeper than {MAX_DEPTH} or has over {MAX_NODES} values"
                self._refuse(event, "form.yaml-size", message)
            yield event

    def key(self, event: Any, parent: Node, depth: int) -> str:
        if isinstance(event, self.opening):
            self._refuse(event, "form.yaml-mapping", "a metadata key is not plain text")
        if parent.child(event.value):
            message = f"the metadata key {event.value!r} occurs twice"
            self._refuse(event, "form.yaml-duplicate-key", message, "keep one")
        return super().key(event, parent, depth)

    def _refuse(self, event: Any, code: str, message: str, hint: str = "simplify the metadata") -> None:
        refuse(self.text, message, event.start_mark.index, code, hint)
