"""Skills: folders in the Agent Skills format (https://agentskills.io/specification), ``SKILL.md`` and its files.

The front matter of ``SKILL.md`` describes the skill. Its map ``metadata`` may have ``version``, ``category``,
``author``, ``tags`` and ``permissions``, these two as words. Every text file has sections; binary assets have none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from kiwi_rag.formats import markdown
from kiwi_rag.formats.documents import WRITTEN, detect, parse_as
from kiwi_rag.formats.knowledge import FrontMatter, Metadata, front_matter, values
from kiwi_rag.formats.nodes import Node
from kiwi_rag.formats.outcome import FindingList, ItemParts, MalformedSource, summary_of
from kiwi_rag.model import Finding, Section

MAX_FILES = 200
MAX_TOTAL_BYTES = 5 << 20
MAX_ASSET_BYTES = 1 << 20
_KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
# A file of another name must be text: an agent, or an interpreter, may read it, so the gate has to.
_ASSETS = frozenset({
    *(".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".bmp", ".ico", ".tif", ".tiff", ".heic", ".psd"),
    *(".woff", ".woff2", ".ttf", ".otf", ".eot", ".mp3", ".wav", ".ogg", ".flac", ".mp4", ".webm", ".mov"),
    *(".pdf", ".docx", ".dotx", ".xlsx", ".xltx", ".pptx", ".potx", ".odt", ".ods", ".odp", ".epub"),
    *(".zip", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".tar", ".parquet", ".sqlite", ".db", ".npy", ".npz", ".onnx"),
})  # fmt: skip
_TOOL = re.compile(r"[A-Za-z_][\w.:-]*(?:\([^)]*\))?")


def is_asset(name: str, data: bytes) -> bool:
    """Return whether a file is a binary asset, which is stored and not read: by its name, and by what it holds."""
    if PurePosixPath(name).suffix.lower() not in _ASSETS:
        return False
    try:
        return "\0" in data.decode()
    except UnicodeDecodeError:
        return True


def exceeded_limit(count: int, total: int, path: str) -> Finding | None:
    """Return a finding if a skill of `count` files and `total` bytes is too large."""
    hint = "split the skill, or link to large files from it"
    if count > MAX_FILES:
        return Finding("bounds.files", f"the skill has over {MAX_FILES} files", path=path, hint=hint)
    if total > MAX_TOTAL_BYTES:
        return Finding("bounds.size", f"the skill has over {MAX_TOTAL_BYTES >> 20} MiB", path=path, hint=hint)
    return None


def parse(item_id: str, content: str, found: FindingList, given: Mapping[str, Any] | None = None) -> ItemParts:
    """Parse the ``SKILL.md`` of a skill; a key that its map ``metadata`` lacks has the value in `given`."""
    lines = markdown.split_lines(content)
    block = front_matter(content, found)
    if block is None or lines[block.start_line - 1].rstrip() != "---":
        hint = "begin SKILL.md with a line '---', name and description, and another line '---'"
        raise MalformedSource("form.no-front-matter", "SKILL.md does not begin with front matter", 1, hint)
    root = block.root()
    _check_keys(block, root, found)
    raw = values(root)
    inner = Metadata(found, _inner(raw, found), given or {})
    metadata = _metadata(Metadata(found, raw), inner)
    version = inner.version(block.start_line, "below metadata in the front matter")
    summary = summary_of(metadata["name"], metadata)
    body = markdown.sections(lines, block.end_line + 1, len(lines), markdown.outline(content, block.end_line).headings)
    return ItemParts(version, metadata, (Section("summary", summary, block.start_line, block.end_line), *body))


def _check_keys(block: FrontMatter, root: Node, found: FindingList) -> None:
    """Warn of keys that the format does not have, and of maps where it has texts."""
    for node in root.children:
        if node.key not in _KEYS:
            message = f"the format of skills has no key {node.key[:40]!r}"
            found.warn("metadata.unknown-key", message, block.line_of(node), "remove it, or write it below 'metadata'")
    inner = root.child("metadata")
    for node in inner.children if inner else ():
        if node.kind == "mapping":
            message = f"the value of {node.key[:40]!r} below 'metadata' is not a text; other tools may refuse it"
            found.warn("metadata.nested", message, block.line_of(node), "write it as one line of text")


def _inner(raw: Mapping[str, Any], found: FindingList) -> Mapping[str, Any]:
    """Return the map ``metadata`` of the front matter."""
    inner = raw.get("metadata") or {}
    if isinstance(inner, dict):
        return inner
    found.add("metadata.type", "'metadata' is not a map of names to texts", 0, "write it as 'name: text' lines")
    return {}


def _metadata(outer: Metadata, inner: Metadata) -> dict[str, Any]:
    return {
        **{key: outer.text(key) for key in ("name", "description", "license", "compatibility")},
        **{key: inner.text(key) for key in ("category", "author")},
        "tags": inner.words("tags"),
        "permissions": inner.words("permissions"),
        "allowed_tools": _TOOL.findall(" ".join(outer.words("allowed-tools", " "))),
    }


def other_sections(files: Mapping[str, bytes], main: str) -> Iterator[Section]:
    """Yield the sections of the text files beside ``SKILL.md``, in the order of their names."""
    for name in sorted(files.keys() - {main}):
        if is_asset(name, files[name]):
            continue
        try:  # as Item.lines does
            text = files[name].decode().removeprefix("\ufeff").replace("\r\n", "\n")
        except UnicodeDecodeError:
            continue  # step 0 of the gate has a finding about it
        form = detect(name, text)
        for section in parse_as(name, text, WRITTEN.get(form, form)).sections:  # a passage is signed lines
            yield replace(section, file=name, heading=tuple(map(_printable, section.heading)))


def _printable(heading: str) -> str:
    """Return a heading, which may be decoded from YAML or JSON, without the characters that a reader does not see."""
    return "".join(character for character in heading if character.isprintable())


def front_matter_json(content: str) -> dict[str, Any] | None:
    """Return the whole front matter of a ``SKILL.md`` with the types of YAML 1.2; None if it is no JSON object."""
    try:
        block = front_matter(content, FindingList())
        found = _typed(block.root(), block.text) if block else None
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    except (MalformedSource, ValueError):
        return None
    return found


_WORDS = {"": None, "True": True, "TRUE": True, "False": False, "FALSE": False}


def _typed(node: Node, text: str) -> Any:
    """Return what a node of a text says; of what is not quoted, JSON's words and numbers are those."""
    if node.kind == "mapping":
        return {child.key: _typed(child, text) for child in node.children}
    if node.kind == "sequence":
        return [_typed(child, text) for child in node.children]
    if text.startswith(('"', "'", "|", ">"), node.start):
        return node.text
    try:
        return json.loads(node.text, parse_constant=str)
    except ValueError:
        return _WORDS.get(node.text, node.text)
