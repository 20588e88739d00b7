"""Replaces the version that a file declares, or adds one, without any other change to the file."""

from __future__ import annotations

import ast
import re

from kiwi_rag.errors import UsageError
from kiwi_rag.formats import directive, knowledge, markdown, script, skill
from kiwi_rag.formats.outcome import FindingList, MalformedSource
from kiwi_rag.model.refs import ItemType

FIRST = "1.0.0"
"""The version that is added to a file without one."""

_SPANS = {
    ItemType.DIRECTIVE: directive.version_span,
    ItemType.SCRIPT: script.version_span,
    ItemType.KNOWLEDGE: knowledge.version_span,
    ItemType.SKILL: skill.version_span,
}
_ROOT = re.compile(r"<directive\b")


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
    try:
        changed = _ADDED[item_type](content, version)
    except MalformedSource as error:
        raise UsageError(f"no version can be added: {error.message}", hint=error.hint) from error
    span = _span(item_type, changed)
    if span is None or changed[slice(*span)] != version:
        raise UsageError(f"no version can be added to this {item_type}", hint=f"declare version {version} by hand")
    return changed


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


def _directive_with(content: str, version: str) -> str:
    fence = directive.block_start(content)
    root = _ROOT.search(content, fence) if fence is not None else None
    if root is None:
        return content
    return f'{content[: root.end()]} version="{version}"{content[root.end() :]}'


def _script_with(content: str, version: str) -> str:
    """Declare the version below the docstring and the ``__future__`` imports, which must stand first."""
    tree = script.parse_module(content)
    head = 0
    for node in tree.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        head = node.end_lineno or node.lineno
    before = head or (min(_first_lines(tree.body[0])) - 1 if tree.body else len(markdown.split_lines(content)))
    return _inserted(
        content, before, ["", f'__version__ = "{version}"'] if head else [f'__version__ = "{version}"', ""]
    )


def _first_lines(node: ast.stmt) -> list[int]:
    return [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))]


def _knowledge_with(content: str, version: str) -> str:
    lines = markdown.split_lines(content)
    block = knowledge.metadata_block(lines, FindingList.of(""))
    if block:
        return _inserted(content, block.end_line - 1, [f'version: "{version}"'])
    return _inserted(content, markdown.signature_lines(lines), ["---", f'version: "{version}"', "---", ""])


def _inserted(content: str, after: int, lines: list[str]) -> str:
    """Return `content` with whole lines put in below its line `after` (0: at the top, behind a byte order mark)."""
    end = "\r\n" if "\r\n" in content else "\n"
    body = content.removeprefix("\ufeff")
    kept = body.split("\n")
    head = "".join(f"{line}\n" for line in kept[:after])
    if after >= len(kept):  # the last line had no end
        head = head[:-1] + end
    return content[: len(content) - len(body)] + head + "".join(line + end for line in lines) + "\n".join(kept[after:])


_ADDED = {
    ItemType.DIRECTIVE: _directive_with,
    ItemType.SCRIPT: _script_with,
    ItemType.KNOWLEDGE: _knowledge_with,
    ItemType.SKILL: skill.with_new_version,
}
