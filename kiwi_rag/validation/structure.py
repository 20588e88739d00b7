"""Step 2: the name is the file's, the category the folder's, and the steps of an XML block can be told apart."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kiwi_rag.formats import directive
from kiwi_rag.model import Finding, Item
from kiwi_rag.refs import ItemType


def check(item: Item, path: str = "") -> list[Finding]:
    """Return what is wrong with the structure of a parsed item."""
    found = [*_name(item, path), *_category(item, path)]
    if item.ref.item_type is ItemType.DIRECTIVE:
        found += [*_steps(item, path), *_inputs(item, path)]
    return found


def line_of(item: Item, pattern: str) -> int:
    """Return the first line of the item's file in which `pattern` occurs, or 0."""
    match = re.search(pattern, item.content, re.MULTILINE)
    return item.content.count("\n", 0, match.start()) + 1 if match else 0


def _name(item: Item, path: str) -> Iterator[Finding]:
    name, stem = str(item.metadata.get("name", "")), item.ref.item_id.rpartition("/")[2]
    line = line_of(item, r"<directive\b|^name[ \t]*:")
    if not name:
        hint = f'write <directive name="{stem}" ...>'
        yield Finding("structure.name-missing", "the directive has no name", line, path, hint)
    elif name != stem:
        message = f"the name {name[:80]!r} is not the file's name {stem!r}"
        yield Finding("structure.name", message, line, path, f"write name {stem!r}, or rename the file")


def _category(item: Item, path: str) -> Iterator[Finding]:
    category, folder = str(item.metadata.get("category", "")), item.ref.item_id.rpartition("/")[0]
    if category and category.strip("/") != folder:
        line = line_of(item, r"<category\b|^category[ \t]*:|^__category__")
        message = f"the category {category[:80]!r} is not the folder {folder!r}"
        yield Finding("structure.category", message, line, path, f"write category {folder!r}", "warning")


def _steps(item: Item, path: str) -> Iterator[Finding]:
    if not item.metadata.get("steps"):
        hint = 'add <process> with <step name="..."> elements'
        yield Finding("structure.no-steps", "the directive has no steps", 0, path, hint, "warning")
    seen: set[str] = set()
    for step in directive.block_steps(item.content):
        if not step.name:
            yield Finding("structure.step-name", "a <step> has no name", step.line, path, "give it a name attribute")
        elif step.name in seen:
            message = f"a second step is named {step.name[:80]!r}"
            yield Finding("structure.step-duplicate", message, step.line, path, "give each step its own name")
        seen.add(step.name)


def _inputs(item: Item, path: str) -> Iterator[Finding]:
    line = line_of(item, r"<inputs\b")
    names = [given["name"] for given in item.metadata.get("inputs", [])]
    if "" in names:
        yield Finding("structure.input-name", "an <input> has no name", line, path, "give it a name attribute")
    for name in sorted({n for n in names if n and names.count(n) > 1}):
        message = f"two inputs are named {name[:80]!r}"
        yield Finding("structure.input-duplicate", message, line, path, "give each input its own name")
