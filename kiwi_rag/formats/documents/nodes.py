"""YAML and JSON as nodes that know where they stand, down to the depth at which sections are cut.

Offsets count characters from 0. They come from the parsers (libyaml's events, the standard library's JSON decoder), not
from a search of the text. YAML is read event by event: nothing recurses, an anchor is never followed, a repeated key is
two entries, and what lies below `DEPTH` is checked but not kept. libyaml counts U+0085, U+2028 and a lone CR as line
ends (YAML 1.1 §4.2); whoever needs lines counts them from the offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from json import JSONDecodeError, JSONDecoder
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from kiwi_rag.formats.outcome import MalformedSource

if TYPE_CHECKING:
    from yaml import Event
    from yaml.error import Mark

DEPTH = 4
MAX_DEPTH = 400
MAX_NODES = 2_000_000
MAX_SCALAR = 400
_MAX_TAG_DIRECTIVES = 100  # libyaml compares each with all before it
_NULLS = frozenset({"~", "null", "Null", "NULL"})

_BLANK = re.compile(r"[ \t\n\r]*")
# A string comes first, so that what looks like a comment or a comma within it is left alone. An unclosed string or
# comment is taken to its end, so that no character is looked at twice.
_STRING = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)")
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_NOT_LINE_END = re.compile(r"[^\n]")

NodeKind = Literal["mapping", "sequence", "scalar"]


@dataclass(slots=True)
class Node:
    """A value with its key, where it has one.

    ``anchor`` is where the entry begins: at its key, or at the value itself. ``start`` and ``end`` are those of the
    value, and ``end`` is that of its last scalar or bracket. ``text`` is what a scalar says, cut at `MAX_SCALAR`
    characters and empty for null and aliases; ``children`` is empty below `DEPTH`.
    """

    kind: NodeKind
    start: int
    anchor: int
    key: str = ""
    end: int = 0
    text: str = ""
    children: list[Node] = field(default_factory=list)

    def child(self, key: str) -> Node | None:
        """Return the first entry under `key`, if there is one."""
        return next((node for node in self.children if node.key == key), None) if self.kind == "mapping" else None

    def said(self, *keys: str) -> str:
        """Return what the scalar at the end of `keys` says on one line, or an empty text."""
        node: Node | None = self
        for key in keys:
            node = node.child(key) if node else None
        return " ".join(node.text.split()) if node and node.kind == "scalar" else ""

    @property
    def is_collection(self) -> bool:
        """Whether it is a mapping or a sequence."""
        return self.kind != "scalar"


def read_yaml(text: str) -> list[Node]:
    """Return the root of each document in `text`; an empty document is an empty scalar.

    Raises
    ------
    MalformedSource
        If libyaml refuses the text, or it nests deeper than `MAX_DEPTH` or has over `MAX_NODES` entries above `DEPTH`.
    """
    import yaml

    if text.count("\n%TAG") > _MAX_TAG_DIRECTIVES:
        malformed(text, f"it has over {_MAX_TAG_DIRECTIVES} tag directives", text.find("\n%TAG") + 1)
    builder = _YamlBuilder(text)
    try:
        for event in _events(text):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        # What is never closed is noticed at the end of the file; where it begins is what a reader looks for.
        scanning = (error.context or "").startswith("while scanning")
        mark = error.context_mark if scanning and error.context_mark else error.problem_mark
        malformed(text, error.problem or error.context or "the parser gives up", _index(mark))
    except yaml.reader.ReaderError as error:
        # libyaml counts bytes of UTF-8 here.
        offset = len(text.encode()[: error.position].decode(errors="ignore"))
        malformed(text, error.reason, offset)
    except UnicodeEncodeError as error:
        malformed(text, "half of a surrogate pair is no character", error.start)
    return builder.documents


def malformed(text: str, message: str, offset: int) -> NoReturn:
    """Raise `MalformedSource` for what stands at `offset`.

    Raises
    ------
    MalformedSource
        Always.
    """
    raise MalformedSource("document.malformed", message, text.count("\n", 0, offset) + 1)


def _events(text: str) -> Iterator[Event]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.parse(text, Loader=loader)


def _index(mark: Mark | None) -> int:
    return mark.index if mark else 0


class _YamlBuilder:
    """Takes events, keeps nodes. ``_stack`` holds the open collections down to `DEPTH`, ``_keys`` the key each awaits.

    Events are typed as anything, for the stubs allow that a mark is missing; the parser sets both on every event.
    """

    def __init__(self, text: str) -> None:
        import yaml

        self.text = text
        self.documents: list[Node] = []
        self._starts: dict[type, NodeKind] = {yaml.MappingStartEvent: "mapping", yaml.SequenceStartEvent: "sequence"}
        self._ends = {yaml.MappingEndEvent, yaml.SequenceEndEvent}
        self._leaves = {yaml.ScalarEvent, yaml.AliasEvent}
        self._document = yaml.DocumentStartEvent
        self._stack: list[Node] = []
        self._keys: list[tuple[str, int] | None] = []
        self._depth = self._count = self._last_end = self._document_start = 0

    def take(self, event: Any) -> None:
        """Note one event."""
        kind = type(event)
        if kind in self._leaves:
            self._leaf(event)
        elif kind in self._starts:
            self._open(event, self._starts[kind])
        elif kind in self._ends:
            self._close(event)
        elif kind is self._document:
            self._document_start = event.start_mark.index

    def _leaf(self, event: Any) -> None:
        self._last_end = event.end_mark.index
        if self._depth > DEPTH:
            return
        start, value = event.start_mark.index, getattr(event, "value", "")
        if self._awaits_key():
            self._keys[-1] = (value, start)
            return
        # A plain scalar's style is "" in libyaml's events, and None in those of the parser in Python.
        null = not getattr(event, "style", None) and value in _NULLS
        self._add(Node("scalar", start, start, end=self._last_end, text="" if null else value[:MAX_SCALAR]))

    def _open(self, event: Any, kind: NodeKind) -> None:
        self._depth += 1
        start = event.start_mark.index
        if self._depth > MAX_DEPTH:
            malformed(self.text, f"it nests deeper than {MAX_DEPTH} levels", start)
        if self._depth > DEPTH:
            self._skip(kind, start)
            return
        node = Node(kind, start, start)
        if self._awaits_key():
            self._keys[-1] = ("", start)
        else:
            self._add(node)
        self._stack.append(node)
        self._keys.append(None)

    def _skip(self, kind: NodeKind, start: int) -> None:
        """Keep that there is a collection just below the depth that is kept, but nothing of what it holds."""
        if self._depth == DEPTH + 1:
            if self._awaits_key():
                self._keys[-1] = ("", start)
            else:
                self._add(Node(kind, start, start))

    def _close(self, event: Any) -> None:
        # The end of a block collection is where the next token begins; only a closing bracket has a length.
        if event.end_mark.index > event.start_mark.index:
            self._last_end = event.end_mark.index
        if self._depth == DEPTH + 1 and self._stack[-1].children:
            self._stack[-1].children[-1].end = self._last_end
        elif self._depth <= DEPTH:
            self._stack.pop().end = self._last_end
            self._keys.pop()
        self._depth -= 1

    def _awaits_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].kind == "mapping" and self._keys[-1] is None

    def _add(self, node: Node) -> None:
        self._count += 1
        if self._count > MAX_NODES:
            malformed(self.text, f"it has over {MAX_NODES:,} entries", node.start)
        if not self._stack:
            node.anchor = self._document_start
            self.documents.append(node)
            return
        key = self._keys[-1]
        if key is not None:
            node.key, node.anchor = key
            self._keys[-1] = None
        self._stack[-1].children.append(node)


def read_json(text: str) -> list[Node]:
    """Return the root of each value in `text`: one in a JSON file (RFC 8259), one a line in JSON Lines.

    Comments and commas behind a last entry, as editors' settings have them, are passed over.

    Raises
    ------
    MalformedSource
        If a value is not JSON, nests too deep for the decoder, or has too many entries in its upper levels.
    """
    try:
        return _JsonReader(text).values()
    except JSONDecodeError as error:
        plain = _strict(text)
        if plain == text:
            _refuse(text, error)
    try:
        return _JsonReader(plain).values()
    except JSONDecodeError as error:
        _refuse(text, error)


def _strict(text: str) -> str:
    """Return `text` with blanks where comments and last commas are; all else stays where it was."""
    bare = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else _NOT_LINE_END.sub(" ", m[0]), text)
    return _LAST_COMMA.sub(lambda m: m[0] if m[0][0] == '"' else " ", bare)


def _refuse(text: str, error: JSONDecodeError) -> NoReturn:
    malformed(text, error.msg, error.pos)


@lru_cache(maxsize=1)
def _decoder() -> JSONDecoder:
    # Numbers stay texts: converting one of thousands of digits is refused or slow, and none is reckoned with.
    return JSONDecoder(strict=False, parse_int=str, parse_float=str)


class _JsonReader:
    def __init__(self, text: str) -> None:
        self._text, self._count, self._decode = text, 0, _decoder().raw_decode

    def values(self) -> list[Node]:
        """Return all values, one after the other."""
        found: list[Node] = []
        position = self._blank(0)
        try:
            while position < len(self._text):
                found.append(self._value(position, DEPTH))
                position = self._blank(found[-1].end)
        except RecursionError:
            malformed(self._text, "it nests too deep", position)
        return found

    def _value(self, position: int, depth: int) -> Node:
        self._count += 1
        if self._count > MAX_NODES:
            malformed(self._text, f"it has over {MAX_NODES:,} entries", position)
        sign = self._sign(position)
        if depth and sign == "{":
            return self._mapping(position, depth - 1)
        if depth and sign == "[" and self._sign(self._blank(position + 1)) in {"{", "["}:
            return self._sequence(position, depth - 1)
        return self._leaf(position, sign)

    def _leaf(self, position: int, sign: str) -> Node:
        value, end = self._decode(self._text, position)
        if sign in {"{", "["}:
            return Node("mapping" if sign == "{" else "sequence", position, position, end=end)
        said = "" if value is None else str(value)[:MAX_SCALAR]
        return Node("scalar", position, position, end=end, text=said)

    def _mapping(self, start: int, depth: int) -> Node:
        node = Node("mapping", start, start)
        position = self._blank(start + 1)
        while self._sign(position) != "}":
            self._require('"', position, "Expecting property name enclosed in double quotes")
            key, end = self._decode(self._text, position)
            colon = self._blank(end)
            self._require(":", colon, "Expecting ':' delimiter")
            child = self._value(self._blank(colon + 1), depth)
            child.key, child.anchor = key, position
            node.children.append(child)
            position = self._next(child.end, "}")
        node.end = position + 1
        return node

    def _sequence(self, start: int, depth: int) -> Node:
        node = Node("sequence", start, start)
        position = self._blank(start + 1)
        while self._sign(position) != "]":
            child = self._value(position, depth)
            node.children.append(child)
            position = self._next(child.end, "]")
        node.end = position + 1
        return node

    def _next(self, end: int, closing: str) -> int:
        """Return where the next entry begins, or the closing bracket stands."""
        position = self._blank(end)
        if self._sign(position) == closing:
            return position
        self._require(",", position, "Expecting ',' delimiter")
        following = self._blank(position + 1)
        if self._sign(following) == closing:
            raise JSONDecodeError("Illegal trailing comma", self._text, position)
        return following

    def _require(self, sign: str, position: int, message: str) -> None:
        if self._sign(position) != sign:
            raise JSONDecodeError(message, self._text, position)

    def _sign(self, position: int) -> str:
        return self._text[position : position + 1]

    def _blank(self, position: int) -> int:
        match = _BLANK.match(self._text, position)
        return match.end() if match else position
