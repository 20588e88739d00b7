"""Java: each method and constructor with its Javadoc and annotations, under its class; parsed by tree-sitter.

A class's first section holds what stands above its first method: the package and imports, its Javadoc and annotations,
its fields. The parser carries on after errors; a file in which it finds no declaration at all is plain text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kiwi_rag.formats.outcome import MalformedSource, ParsedDocument, Stretch, one_line, sections

if TYPE_CHECKING:
    from tree_sitter import Language, Node

_TYPES = frozenset({
    *("class_declaration", "interface_declaration", "enum_declaration", "record_declaration"),
    "annotation_type_declaration",
})  # fmt: skip
_METHODS = frozenset({
    *("method_declaration", "constructor_declaration", "compact_constructor_declaration"),
    "annotation_type_element_declaration",
})  # fmt: skip
_FIELDS = frozenset({"field_declaration", "constant_declaration"})
_COMMENTS = frozenset({"block_comment", "line_comment"})
_NAMES = frozenset({"scoped_identifier", "identifier"})
_WITHIN = frozenset({"enum_body_declarations", "ERROR"})
_NESTING = 50
LARGEST = 2 << 20
"""Characters; the tree of larger ones takes memory by the gigabyte."""


def parse(text: str, form: str) -> ParsedDocument:
    """Return Java as sections of the kinds ``class``, ``method`` and ``field``; the title is the first type's name.

    The path of headings is the type with its package, types nested in it, and the method's signature.
    """
    if len(text) > LARGEST:
        raise MalformedSource("document.large", f"{LARGEST >> 20} MiB", 0)
    from tree_sitter import Parser

    root = Parser(_language()).parse(text.encode("utf-8", "replace")).root_node
    lines = text.split("\n")
    package = _package(root)
    inner = tuple(_members(root, package, (), _NESTING))
    if not inner and root.has_error:
        raise MalformedSource("document.malformed", "no class, interface, enum or record is found in it", 0)
    types = [stretch for stretch in inner if stretch.kind == "class"]
    name = types[0].heading[-1].removeprefix(f"{package}.") if types else ""
    whole = Stretch("class", 1, len(lines), types[0].heading if types else (package,) if package else (), inner)
    return ParsedDocument(form, one_line(name), sections(lines, whole))


@lru_cache(maxsize=1)
def _language() -> Language:
    import tree_sitter_java
    from tree_sitter import Language

    return Language(tree_sitter_java.language())


def _package(root: Node) -> str:
    declared = (node for node in root.named_children if node.type == "package_declaration")
    names = (_text(child) for node in declared for child in node.named_children if child.type in _NAMES)
    return next(names, "")


def _members(node: Node, package: str, outer: tuple[str, ...], nesting: int) -> Iterator[Stretch]:
    """Yield the methods, the types and the fields below the first of them, each with the comments above it."""
    above, last, seen = 0, 0, False
    for child in node.named_children:
        start, end = child.start_point.row + 1, child.end_point.row + 1
        if child.type in _COMMENTS:
            above = above or (start if start > last else 0)
            continue
        found = list(_stretches(child, package, outer, nesting))
        if found and (seen or child.type not in _FIELDS):
            yield replace(found[0], start=above or found[0].start)
            yield from found[1:]
            seen = True
        above, last = 0, end


def _stretches(node: Node, package: str, outer: tuple[str, ...], nesting: int) -> Iterator[Stretch]:
    """Yield what a member is: a method, a field, a type with its members, or, of what only holds members, those."""
    start, end = node.start_point.row + 1, node.end_point.row + 1
    if node.type in _METHODS:
        yield Stretch("method", start, end, (*outer, _signature(node)))
    elif node.type in _FIELDS:
        yield Stretch("field", start, end, outer)
    elif node.type in _TYPES:
        name = _text(node.child_by_field_name("name"))
        heading = (*outer, name) if outer or not package else (f"{package}.{name}",)
        body = node.child_by_field_name("body")
        inner = tuple(_members(body, package, heading, nesting - 1)) if body and nesting else ()
        yield Stretch("class", start, end, heading, inner)
    elif node.type in _WITHIN and nesting:
        yield from _members(node, package, outer, nesting - 1)


def _signature(node: Node) -> str:
    """Return the type a method gives, its name and its parameters, on one line."""
    name, parameters = node.child_by_field_name("name"), node.child_by_field_name("parameters")
    parts = [_text(node.child_by_field_name("type")), _text(name)]
    given = _text(parameters) if parameters else "" if node.type.startswith("compact") else "()"
    return one_line(f"{' '.join(filter(None, parts))}{given}")


def _text(node: Node | None) -> str:
    return node.text.decode("utf-8", "replace") if node and node.text else ""
