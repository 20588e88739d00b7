"""Source code: each definition with the comments above it, under the types around it; parsed by tree-sitter.

What a definition is in a language is said by a query: ``code.toml`` has all of them. The parser carries on after
errors; a file in which it finds no definition is plain text. A grammar is imported for the first file in its language.
"""

from __future__ import annotations

import re
import time
import tomllib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kiwi_rag.formats.documents.header import leading_sentence
from kiwi_rag.formats.outcome import MalformedSource, ParsedDocument, Stretch, one_line, sections
from kiwi_rag.wordpieces import code

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Query

    _Captures = dict[str, list[Node]]
    _Matches = Sequence[tuple[int, _Captures]]

LARGEST = 1 << 20
"""Characters; the tree of larger ones takes memory by the gigabyte."""
_NESTING = 50
_SECONDS = 1
_SECONDS_PER_MIB = 1
_READ = 1 << 16
_DEEPEST = 5_000
_SIGNS = 10_000
_MANY = 20_000
# Type arguments that none closes: with some thousands of them the grammars of Java and C# take gigabytes at once.
_OPEN_TYPES = re.compile(r"(?:(?<!\w)\w++\s*+<\s*+){500}")
_WHOLE = 1_500
_WHOLE_TOKENS = 190
_CONTAINERS = ("class", "module")
_OWN = {"constant": "field", "declaration": "callable"}
_DEFINITIONS = (*_CONTAINERS, "method", "function", "callable", "field", *_OWN, "leaf")
_PARAMETERS = frozenset({
    *("parameter", "identifier", "list_splat_pattern", "dictionary_splat_pattern", "keyword_separator"),
    *("typed_parameter", "default_parameter", "typed_default_parameter"),
})  # fmt: skip
_TYPE_ARGUMENTS = re.compile(r"<[^<>]*>|[<\[?].*", re.DOTALL)


class _Language(NamedTuple):
    """A row of the table, with its grammar and its query."""

    grammar: Language
    query: Query
    file_type: str
    root: str
    apart: bool
    whole: bool
    strict: bool


class _Definition(NamedTuple):
    """A definition: its bytes, its lines, and its heading below the types around it."""

    kind: str
    start: int
    end: int
    first: int
    last: int
    heading: tuple[str, ...]
    is_sound: bool = True


def parse(text: str, form: str) -> ParsedDocument:
    """Return source code as sections of the kinds ``class``, ``method``, ``function``, ``field`` and ``module``.

    The path of headings is that of the outer types, and the definition's name or signature. The title is the first
    sentence of the comment or the docstring that the file begins with where that is short, else the name of its first
    type, or of its first function.

    Raises
    ------
    MalformedSource
        If the text is larger than `LARGEST`, or not code in that language, or nested too deeply, or if the grammar of
        the language is not installed.
    """
    if len(text) > LARGEST:
        raise MalformedSource("document.large", f"{LARGEST >> 20} MiB", 0)
    if "\0" in text or _OPEN_TYPES.search(text):  # NUL is the end of a file to many grammars
        raise MalformedSource("document.malformed", "it holds NUL characters, or nests too deeply", 0)
    language, data = _language(form), text.encode("utf-8", "replace")
    matches = _matches(language, data)
    found, errors = _definitions(matches, data), [node.start_point.row + 1 for node in _captured(matches, "error")]
    if errors and not any(one.is_sound or not language.strict for one in found):
        raise MalformedSource("document.malformed", "invalid syntax, or syntax unknown to the grammar", min(errors))
    package = _text(data, [*_captured(matches, "package")])
    above = _comments(matches, data.split(b"\n"), blank_lines=language.apart)
    return _document(text, form, _Outline(language, text.split("\n"), package, above, deque(found)))


def _document(text: str, form: str, outline: _Outline) -> ParsedDocument:
    language, lines, package = outline.language, outline.lines, outline.package
    inner = tuple(outline.within(4 * len(text)))
    # Of Java, what stands around the types is taken to be the first one's.
    types = [one for one in inner if one.kind == language.root == "class"]
    heading = types[0].heading if types else (package,) if package and language.root == "class" else ()
    first = inner[0].start if inner else len(lines) + 1
    title = leading_sentence("\n".join(lines[: first - 1]), form) or _main(inner) or _name(types)
    whole = Stretch(language.root, 1, len(lines), heading, inner)
    return ParsedDocument(language.file_type, one_line(title.removeprefix(f"{package}.")), sections(lines, whole))


@cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("code.toml").read_text("utf-8"))


@cache
def _language(form: str) -> _Language:
    from tree_sitter import Language, Query

    row = _table()[form]
    module = row.get("module", f"tree_sitter_{form}")
    rules = _table()[row["like"]]["query"] if "like" in row else row["query"]
    try:
        grammar = Language(getattr(import_module(module), row.get("function", "language"))())
        query = Query(grammar, f"{rules}[(ERROR) (MISSING)] @error")
    except (ImportError, ValueError) as error:  # not installed, or not the version that the table is for
        raise MalformedSource("document.grammar", module.replace("_", "-"), 0) from error
    options = row.get("root", "module"), row.get("apart", False), row.get("whole", True), row.get("strict", False)
    return _Language(grammar, query, row.get("file_type", form), *options)


def _matches(language: _Language, data: bytes) -> _Matches:
    """Parse a file, and run the query of its language over the tree.

    Both take time in proportion to a file's length if people wrote it. For what nobody writes they may take hours, and
    gigabytes of memory. The limit is several times what files of that length take.
    """
    from tree_sitter import Parser, QueryCursor

    seconds = _SECONDS + _SECONDS_PER_MIB * len(data) / (1 << 20)
    end = time.thread_time() + seconds  # of this thread, so that a busy machine gives no other sections
    try:
        tree = Parser(language.grammar).parse(
            lambda start, _: data[start : start + _READ], progress_callback=lambda *_: time.thread_time() > end
        )
    except ValueError as error:
        raise MalformedSource("document.malformed", "it takes too long to parse", 0) from error
    if tree.root_node.descendant_count > _MANY and _is_odd(tree.root_node):
        raise MalformedSource("document.malformed", "it nests too deeply, or is signs without words", 0)
    return QueryCursor(language.query).matches(tree.root_node)


def _is_odd(root: Node) -> bool:
    """Whether a tree is nested deeply, or has many signs in a row; a query takes their number squared."""
    cursor, signs = root.walk(), [0]  # how many signs are before a node and below the same parent, for each level
    while True:
        signs[-1] = 0 if cursor.node is None or cursor.node.is_named else signs[-1] + 1
        if signs[-1] > _SIGNS or len(signs) > _DEEPEST:
            return True
        if cursor.goto_first_child():
            signs.append(0)
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return False
            signs.pop()


def _definitions(matches: _Matches, data: bytes) -> list[_Definition]:
    """Return the definitions in order, outer ones first; of those with the same name at the same place the first."""
    wrappers = {node.named_children[-1].start_byte: node for node in _captured(matches, "wrapper")}
    found: dict[int, tuple[tuple[int, int, int], str, _Captures]] = {}
    for pattern, captures in matches:
        for kind in captures.keys() & _DEFINITIONS:
            node = captures[kind][0]
            place = captures.get("name", captures[kind])[0].start_byte
            one = (node.start_byte, -node.end_byte, pattern), kind, captures
            if place not in found or one[0] < found[place][0]:
                found[place] = one
    return [
        _definition(kind, captures, wrappers, data)
        for _, kind, captures in sorted(found.values(), key=lambda one: one[0])
    ]


def _captured(matches: _Matches, name: str) -> Iterator[Node]:
    return (node for _, captures in matches for node in captures.get(name, ()))


def _definition(kind: str, captures: _Captures, wrappers: dict[int, Node], data: bytes) -> _Definition:
    node = first = captures[kind][0]
    while (wrapper := wrappers.get(first.start_byte)) and wrapper.start_byte < first.start_byte:
        first = wrapper
    heading = (*_outer(captures, data), _signature(kind, captures, data)) if "name" in captures else ()
    lines = first.start_point.row + 1, _last_line(node)
    return _Definition(kind, first.start_byte, node.end_byte, *lines, heading, not node.has_error)


def _last_line(node: Node) -> int:
    row, column = node.end_point
    return row + (column > 0 or row == node.start_point.row)


def _outer(captures: _Captures, data: bytes) -> tuple[str, ...]:
    """Return the names of the types that a definition names as its own: ``A::b``, ``(a *A) b``, ``A.b``."""
    named = [_TYPE_ARGUMENTS.sub("", _text(data, captures["outer"]))] if "outer" in captures else []
    return tuple("::".join([*named, _text(data, captures["name"])]).split("::")[:-1])


def _signature(kind: str, captures: _Captures, data: bytes) -> str:
    """Return a type's name, or the type that a function gives, its name and its parameters."""
    name = _text(data, captures["name"]).rpartition("::")[2].strip("\"'`")
    if kind in (*_CONTAINERS, "constant") or "bare" in captures:
        return name
    given = "".join(_text(data, [node]) for node in captures.get("parameters", ()))
    arguments = captures["arguments"][0].named_children if "arguments" in captures else ()
    listed = ", ".join(_text(data, [_parameter(node)]) for node in arguments if node.type in _PARAMETERS)
    return f"{_text(data, captures.get('type', ()))} {name}{given or f'({listed})'}".strip()


def _parameter(node: Node) -> Node:
    """Return what a parameter is in a signature: of Python its name without its type and its default."""
    named = node.child_by_field_name("name") if node.type.endswith("default_parameter") else None
    return named or (node.named_children[0] if node.type == "typed_parameter" else node)


def _text(data: bytes, nodes: Sequence[Node]) -> str:
    return data[nodes[0].start_byte : nodes[0].end_byte].decode("utf-8", "replace") if nodes else ""


def _comments(matches: _Matches, rows: Sequence[bytes], *, blank_lines: bool) -> dict[int, int]:
    """Return last line → first line of each run of comments on lines of their own, with the blank lines below them."""
    alone, above, seen = dict[int, int](), dict[int, int](), -1
    for node in sorted(_captured(matches, "comment"), key=lambda node: node.start_byte):
        (row, column), (end, end_column), last = node.start_point, node.end_point, _last_line(node)
        # Only the first one of a row: a row may hold very many.
        if row > seen and not rows[row][:column].strip() and not (last > end and rows[end][end_column:].strip()):
            alone[last] = row + 1
        seen = row
    for line, content in enumerate(rows, start=1):
        if line in alone:
            above[line] = above.get(alone[line] - 1, alone[line])
        elif blank_lines and line - 1 in above and not content.strip():
            above[line] = above[line - 1]
    return above


@dataclass(slots=True)
class _Outline:
    """Definitions in order, from which the tree of stretches is made."""

    language: _Language
    lines: Sequence[str]
    package: str
    above: dict[int, int]
    waiting: deque[_Definition]

    def within(self, end: int, outer: Stretch | None = None, nesting: int = _NESTING) -> Iterator[Stretch]:
        """Yield the definitions that begin before the byte `end`, those inside of them below them."""
        has_members = False
        while self.waiting and self.waiting[0].start < end:
            one = self.waiting.popleft()
            stretch = self._stretch(one, outer)
            inner = tuple(self.within(one.end, stretch, nesting - 1)) if one.kind in _CONTAINERS and nesting else ()
            while self.waiting and self.waiting[0].start < one.end:
                self.waiting.popleft()
            if self._is_own(one, stretch, outer, has_members=has_members):
                has_members |= one.kind != "field"
                yield replace(stretch, inner=inner if self._is_large(one, stretch) else ())

    def _stretch(self, one: _Definition, outer: Stretch | None) -> Stretch:
        kind = _OWN.get(one.kind, one.kind)
        if kind == "callable":
            kind = "method" if (outer and outer.kind == "class") or len(one.heading) > 1 else "function"
        heading = (*(outer.heading if outer else ()), *(() if kind == one.kind == "field" else one.heading))
        if kind == "class" and not outer and self.package:
            heading = (f"{self.package}.{heading[0]}", *heading[1:])
        return Stretch(kind, self.above.get(one.first - 1, one.first), one.last, heading)

    def _is_own(self, one: _Definition, stretch: Stretch, outer: Stretch | None, *, has_members: bool) -> bool:
        """Whether a definition is a section of its own, and not of what is around it."""
        if one.kind == "leaf" or (
            one.kind == "class" and outer and (outer.start, outer.end) == (stretch.start, stretch.end)
        ):
            return False  # such as the struct of a typedef
        if one.kind in _OWN:
            return stretch.start < stretch.end
        return one.kind != "field" or (has_members and outer is not None)

    def _is_large(self, one: _Definition, stretch: Stretch) -> bool:
        """Whether a definition is split by what is in it."""
        if one.kind == "module" or not self.language.whole or one.end - one.start > 4 * _WHOLE:
            return True
        text = "\n".join(self.lines[stretch.start - 1 : stretch.end])
        return len(text) > _WHOLE or code.count(text) > _WHOLE_TOKENS


def _main(stretches: Sequence[Stretch]) -> str:
    """Return the name of the definition that has half of the lines of all of them, or more; else nothing."""
    named = [one for one in _flat(stretches) if one.heading]
    main = max(named, key=lambda one: one.end - one.start, default=None)
    lines = sum(one.end - one.start + 1 for one in named)
    if main is None or 2 * (main.end - main.start + 1) < lines:
        return ""
    return _name([main])


def _name(definitions: Sequence[Stretch]) -> str:
    """Return the name of the first definition, or nothing."""
    return definitions[0].heading[-1].partition("(")[0].rpartition(" ")[2] if definitions else ""


def _flat(stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    """Yield the definitions, those in namespaces too, without what is in them."""
    for one in stretches:
        yield from _flat(one.inner) if one.kind == "module" else (one,)
