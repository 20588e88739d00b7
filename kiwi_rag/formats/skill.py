"""Skills: folders in the Agent Skills format (https://agentskills.io/specification), ``SKILL.md`` and its files.

The front matter of ``SKILL.md`` describes the skill. Its map ``metadata`` may have ``version``, ``category``,
``author``, ``tags`` and ``permissions``, these two as words. Every text file has sections; binary assets have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from kiwi_rag.formats import markdown
from kiwi_rag.formats.documents import parse as parse_document
from kiwi_rag.formats.knowledge import DEFAULT_VERSION, MetadataBlock, metadata_block
from kiwi_rag.formats.outcome import FindingList, MalformedSource, ParseOutcome
from kiwi_rag.formats.yaml_block import parse_yaml
from kiwi_rag.model import Finding, Item, Section
from kiwi_rag.model.refs import ItemRef, ItemType

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
_VALUE = r"(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\s#'\",{}][^\n#,{}]*))"
_VERSION_LINE = re.compile(rf"[ \t]+version[ \t]*:[ \t]+{_VALUE}")
_FLOW_VERSION = re.compile(rf"metadata[ \t]*:[ \t]*\{{(?:[^}}\n]*[,\s])?version[ \t]*:[ \t]+{_VALUE}")
_METADATA_KEY = re.compile(r"metadata[ \t]*:[ \t]*(?:#.*)?$")
_FLOW_METADATA = re.compile(r"metadata[ \t]*:[ \t]*\{")


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


def parse(item_id: str, files: Mapping[str, bytes], executables: tuple[str, ...] = (), path: str = "") -> ParseOutcome:
    """Parse a skill; `files` has ``SKILL.md`` in UTF-8, and `path` is that of ``SKILL.md``."""
    found = FindingList.of(path)
    ref = ItemRef(ItemType.SKILL, item_id)
    content = files[ref.main_file].decode()
    lines = markdown.split_lines(content)
    block = metadata_block(lines, found)
    if block is None or lines[block.start_line - 1].rstrip() != "---":
        hint = "begin SKILL.md with a line '---', name and description, and another line '---'"
        found.add("form.no-front-matter", "SKILL.md does not begin with front matter", 1, hint)
        return ParseOutcome(None, tuple(found.found))
    try:
        raw = parse_yaml(block.text)
    except MalformedSource as error:
        found.add_malformed(error, block.start_line)
        return ParseOutcome(None, tuple(found.found))
    metadata, version = _metadata(raw, found), _version(raw, block, found)
    sections = (*_main_sections(lines, block, content, metadata), *_other_sections(files, ref.main_file))
    findings = tuple(found.found)
    item = Item(replace(ref, version=version), files, ref.main_file, metadata, sections, findings, executables)
    return ParseOutcome(item, findings)


def version_span(content: str) -> tuple[int, int] | None:
    """Return where the value of ``version`` below ``metadata`` stands in `content`, or ``None``."""
    lines = markdown.split_lines(content)
    block = metadata_block(lines, FindingList.of(""))
    if block is None:
        return None
    inside = False
    offset = len(content) - len(content.removeprefix("\ufeff")) + sum(len(x) + 1 for x in lines[: block.start_line])
    for line in lines[block.start_line : block.end_line - 1]:
        if line[:1].strip() and not line.startswith("#"):
            inside = _METADATA_KEY.match(line.rstrip()) is not None
        match = (_VERSION_LINE if inside else _FLOW_VERSION).match(line)
        if match:
            group = next(g for g in (1, 2, 3) if match[g] is not None)
            start = offset + match.start(group)
            return start, start + len(match[group].rstrip())
        offset += len(line) + 1
    return None


def with_new_version(content: str, version: str) -> str:
    """Return `content`, whose front matter declares no version, with `version` below ``metadata``."""
    lines = content.split("\n")
    block = metadata_block(markdown.split_lines(content), FindingList.of(""))
    if block is None:
        return content
    end = "\r" if lines[block.start_line - 1].endswith("\r") else ""
    for number in range(block.start_line, block.end_line - 1):
        if flow := _FLOW_METADATA.match(lines[number]):
            rest = lines[number][flow.end() :]
            comma = "" if rest.lstrip().startswith("}") else ", "
            lines[number] = f'{flow[0]}version: "{version}"{comma}{rest}'
            return "\n".join(lines)
        if _METADATA_KEY.match(lines[number].rstrip()):
            indent = re.match(r"[ \t]*", lines[number + 1])
            lines.insert(number + 1, f'{(indent and indent[0]) or "  "}version: "{version}"{end}')
            return "\n".join(lines)
    lines[block.end_line - 1 : block.end_line - 1] = [f"metadata:{end}", f'  version: "{version}"{end}']
    return "\n".join(lines)


def _metadata(raw: Mapping[str, Any], found: FindingList) -> dict[str, Any]:
    for key in sorted(raw.keys() - _KEYS):
        hint = "remove it, or write it below 'metadata'"
        found.warn("metadata.unknown-key", f"the format of skills has no key {key[:40]!r}", 1, hint)
    inner = raw.get("metadata", {}) or {}
    if not isinstance(inner, dict):
        found.add("metadata.type", "'metadata' is not a map of names to texts", 0, "write it as 'name: text' lines")
        inner = {}
    plain = ("name", "description", "license", "compatibility")
    return {
        **{key: _text(raw, key, found) for key in plain},
        **{key: _text(inner, key, found) for key in ("category", "author")},
        "tags": _words(inner, "tags", found),
        "permissions": _words(inner, "permissions", found),
        "allowed_tools": _TOOL.findall(" ".join(_words(raw, "allowed-tools", found, " "))),
    }


def _text(raw: Mapping[str, Any], key: str, found: FindingList) -> str:
    value = raw.get(key, "")
    if isinstance(value, str):
        return " ".join(value.split())
    found.add("metadata.type", f"the metadata key {key!r} is not text", 0, f"write {key} as one line of text")
    return ""


def _words(raw: Mapping[str, Any], key: str, found: FindingList, separator: str = ",") -> list[str]:
    value = raw.get(key, "")
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return [" ".join(word.split()) for word in value if word.strip()]
    if not isinstance(value, str):
        found.add("metadata.type", f"{key!r} is not a list of words", 0, f"write {key} as [one, two]")
        return []
    return [word.strip() for word in value.split(separator) if word.strip()]


def _version(raw: Mapping[str, Any], block: MetadataBlock, found: FindingList) -> str:
    inner = raw.get("metadata")
    version = _text(inner, "version", found) if isinstance(inner, dict) else ""
    if not version:
        message = f"no version is declared; {DEFAULT_VERSION} is assumed"
        hint = 'add version: "1.0.0" below metadata in the front matter'
        found.warn("metadata.version-missing", message, block.start_line, hint)
    return version or DEFAULT_VERSION


def _main_sections(
    lines: Sequence[str], block: MetadataBlock, content: str, metadata: Mapping[str, Any]
) -> Iterator[Section]:
    parts = [metadata["name"], metadata["description"]]
    parts += [f"Category: {metadata['category']}"] if metadata["category"] else []
    parts += [f"Tags: {', '.join(metadata['tags'])}"] if metadata["tags"] else []
    yield Section("summary", "\n".join(part for part in parts if part), block.start_line, block.end_line)
    headings = markdown.outline(content, block.end_line).headings
    yield from markdown.sections(lines, block.end_line + 1, len(lines), headings)


def _other_sections(files: Mapping[str, bytes], main: str) -> Iterator[Section]:
    for name in sorted(files.keys() - {main}):
        if is_asset(name, files[name]):
            continue
        try:  # as Item.lines does
            text = files[name].decode().removeprefix("\ufeff").replace("\r\n", "\n")
        except UnicodeDecodeError:
            continue  # step 0 of the gate has a finding about it
        for section in parse_document(name, text).sections:
            yield replace(section, file=name, heading=tuple(map(_printable, section.heading)))


def _printable(heading: str) -> str:
    """Return a heading, which may be decoded from YAML or JSON, without the characters that a reader does not see."""
    return "".join(character for character in heading if character.isprintable())
