"""Replaces the version that a file declares, or adds metadata to it, without any other change to the file."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import semver

from kiwi_rag.errors import MalformedEnvelope, UsageError
from kiwi_rag.formats import directive, markdown, script
from kiwi_rag.formats.knowledge import FrontMatter, front_matter
from kiwi_rag.formats.nodes import Node
from kiwi_rag.formats.outcome import FindingList, MalformedSource
from kiwi_rag.model.refs import ItemType

FIRST = "1.0.0"
"""The version that is added to a file without one."""

_ROOT = re.compile(r"<directive\b")


def version_order(version: str) -> semver.Version:
    """Return a version as one that can be compared; `MalformedEnvelope` where it is no SemVer version."""
    try:
        return semver.Version.parse(version)
    except ValueError as error:  # an item can be signed without Kiwi, and then its version is not checked
        raise MalformedEnvelope(f"{version[:40]!r} is not a SemVer version") from error


def next_version(existing: Iterable[str], part: str = "patch") -> str:
    """Return the version after the highest of `existing`, raised in its `part`; the first one where there is none."""
    highest = max(map(semver.Version.parse, existing), default=None)
    return str(highest.next_version(part)) if highest else FIRST


def with_version(item_type: ItemType, content: str, version: str) -> str:
    """Return `content` with its declared version replaced by `version`.

    Raises
    ------
    UsageError
        If the content declares no version that can be replaced in place, or cannot be read.
    """
    span = _span(item_type, content)
    if span is None:
        raise UsageError(f"this {item_type} declares no version", hint=f"declare one, such as {FIRST}")
    return content[: span[0]] + version + content[span[1] :]


def add_version(item_type: ItemType, content: str, version: str) -> str:
    """Return `content`, which declares no version, with `version` declared where its format wants it.

    Raises
    ------
    UsageError
        If the content cannot be read, or has no place for it.
    """
    _span(item_type, content)  # raises if it cannot be read
    add = _ADD.get(item_type)
    changed = add(content, version) if add else add_metadata(item_type, content, {"version": version})
    span = _span(item_type, changed)
    if span is None or changed[slice(*span)] != version:
        raise UsageError(f"no version can be added to this {item_type}", hint=f"declare version {version} by hand")
    return changed


def add_metadata(item_type: ItemType, content: str, values: Mapping[str, str | Sequence[str]]) -> str:
    """Return the text of knowledge or of a skill, which declares none of `values`, with these declared.

    Raises
    ------
    UsageError
        If the content cannot be read.
    """
    _span(item_type, content)  # raises if it cannot be read
    is_skill = item_type is ItemType.SKILL  # its metadata is texts
    texts = {name: ", ".join(v) if is_skill and not isinstance(v, str) else v for name, v in values.items() if v}
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in texts.items()]
    return (_skill_with if is_skill else _knowledge_with)(content, *lines) if lines else content


def version_line(item_type: ItemType, content: str) -> tuple[int, str]:
    """Return the number and the text of the line that declares the version."""
    span = _span(item_type, content)
    number = content.count("\n", 0, span[0] if span else 0) + 1
    return number, content.split("\n")[number - 1].strip()


def _span(item_type: ItemType, content: str) -> tuple[int, int] | None:
    try:
        return _SPANS[item_type](content)
    except MalformedSource as error:
        raise UsageError(f"the version cannot be changed: {error.message}", hint=error.hint) from error


def _metadata_span(keys: tuple[str, ...], content: str) -> tuple[int, int] | None:
    """Return where the text of the scalar under `keys` stands, if it stands there as it is read."""
    block, node = _metadata(content)
    for key in keys:
        node = node.child(key) if node else None
    if block is None or node is None or not node.text:
        return None
    quote = block.text[node.start] in "\"'"
    start, end = block.offset + node.start + quote, block.offset + node.end - quote
    return (start, end) if content[start:end] == node.text else None


def _metadata(content: str) -> tuple[FrontMatter | None, Node | None]:
    block = front_matter(content, FindingList())
    return block, block.root() if block else None


def _directive_with(content: str, version: str) -> str:
    root = _ROOT.search(content, directive.block_span(content)[0])
    return f'{content[: root.end()]} version="{version}"{content[root.end() :]}' if root else content


def _script_with(content: str, version: str) -> str:
    """Declare the version below the docstring and the ``__future__`` imports, which must stand first."""
    tree = script.parse_module(content)
    head = 0
    for node in tree.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        head = node.end_lineno or node.lineno
    declared = f'__version__ = "{version}"'
    if head:
        return _inserted(content, head, "", declared)
    first = script.first_line(tree.body[0]) - 1 if tree.body else len(markdown.split_lines(content))
    return _inserted(content, first, declared, "")


def _knowledge_with(content: str, *lines: str) -> str:
    block, _ = _metadata(content)
    if block:
        return _inserted(content, block.end_line - 1, *lines)
    return _inserted(content, markdown.signature_lines(markdown.split_lines(content)), "---", *lines, "---", "")


def _skill_with(content: str, *lines: str) -> str:
    """Put lines first below ``metadata``, which is added where there is none."""
    block, root = _metadata(content)
    if block is None or root is None:
        return content
    node = root.child("metadata")
    if node is None:
        return _inserted(content, block.end_line - 1, "metadata:", *(f"  {line}" for line in lines))
    start = block.offset + node.start
    if content[start] == "{":
        return f"{content[: start + 1]}{', '.join(lines)}{', ' if node.children else ''}{content[start + 1 :]}"
    before = content[:start]
    if node.children:
        indent = before[before.rindex("\n") + 1 :]
        return _inserted(content, before.count("\n"), *(f"{indent}{line}" for line in lines))
    return _inserted(content, before.count("\n") + 1, *(f"  {line}" for line in lines))


def _inserted(content: str, after: int, *lines: str) -> str:
    """Return `content` with whole lines put in below its line `after` (0: at the top, behind a byte order mark)."""
    end = "\r\n" if "\r\n" in content else "\n"
    start = markdown.line_offset(content, after + 1)
    head = content[:start] if start <= len(content) else content + end  # the last line had no end
    return head + "".join(line + end for line in lines) + content[start:]


_ADD = {ItemType.DIRECTIVE: _directive_with, ItemType.SCRIPT: _script_with}
_SPANS: dict[ItemType, Callable[[str], tuple[int, int] | None]] = {
    ItemType.DIRECTIVE: directive.version_span,
    ItemType.SCRIPT: script.version_span,
    ItemType.KNOWLEDGE: partial(_metadata_span, ("version",)),
    ItemType.SKILL: partial(_metadata_span, ("metadata", "version")),
}
