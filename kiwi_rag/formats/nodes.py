"""YAML and JSON as nodes that know where they stand, down to the depth at which sections are cut.

Offsets count characters from 0. They come from the parsers (libyaml's events, the standard library's JSON decoder), not
from a search of the text. YAML is read event by event: nothing recurses, an anchor is never followed, a repeated key is
two entries, and what lies below `DEPTH` is checked but not kept. libyaml counts U+0085, U+2028 and a lone CR as line
ends (YAML 1.1 §4.2); whoever needs lines counts them from the offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from json import JSONDecodeError, JSONDecoder
from typing import Any, Literal, NoReturn

from kiwi_rag.formats.outcome import MalformedSource

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
_JSON_KINDS: dict[str, NodeKind] = {"{": "mapping", "[": "sequence"}


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

    def said(self, *paths: Sequence[str]) -> str:
        """Return what the scalar at the end of the first of `paths` that leads to one says, on one line; else empty."""
        for path in paths:
            node: Node | None = self
            for key in path:
                node = node.child(key) if node else None
            if node and node.kind == "scalar" and (text := " ".join(node.text.split())):
                return text
        return ""

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
        refuse(text, f"it has over {_MAX_TAG_DIRECTIVES} tag directives", text.find("\n%TAG") + 1)
    return YamlReader(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)).documents()


def refuse(text: str, message: str, offset: int, code: str = "form.yaml", hint: str = "") -> NoReturn:
    """Raise `MalformedSource` for what stands at `offset`.

    Raises
    ------
    MalformedSource
        Always.
    """
    raise MalformedSource(code, message, text.count("\n", 0, offset) + 1, hint)


class YamlReader:
    """Reads the events of a YAML text into nodes; recurses only down to `depth`, whatever the text holds.

    Events are typed as anything, for the stubs allow that a mark is missing; the parser sets both on every event.
    """

    def __init__(self, text: str, loader: type, depth: int = DEPTH, max_scalar: int = MAX_SCALAR) -> None:
        import yaml

        self.text, self._depth, self._max_scalar = text, depth, max_scalar
        self._mapping = yaml.MappingStartEvent
        self.opening: type[Any] = yaml.CollectionStartEvent
        self.closing: type[Any] = yaml.CollectionEndEvent
        self._events = self.events(loader)
        self._count = self._end = 0

    def events(self, loader: type) -> Iterator[Any]:
        """Yield the events of the text."""
        import yaml

        yield from yaml.parse(self.text, Loader=loader)

    def documents(self) -> list[Node]:
        """Return the root of each document.

        Raises
        ------
        MalformedSource
            If the parser refuses the text, or a limit is exceeded.
        """
        import yaml

        begins: type[Any] = yaml.DocumentStartEvent
        roots: list[Node] = []
        try:
            for document in self._events:
                if isinstance(document, begins):
                    roots.append(self._value(next(self._events), self._depth))
                    roots[-1].anchor = document.start_mark.index
            return roots
        except yaml.MarkedYAMLError as error:
            # What is never closed is noticed at the end of the file; where it begins is what a reader looks for.
            scanning = (error.context or "").startswith("while scanning")
            mark = error.context_mark if scanning and error.context_mark else error.problem_mark
            offset = mark.index if mark else 0
            refuse(self.text, error.problem or error.context or "the parser gives up", offset)
        except yaml.reader.ReaderError as error:
            # libyaml counts bytes of UTF-8 here.
            offset = len(self.text.encode()[: error.position].decode(errors="ignore"))
            refuse(self.text, error.reason, offset)
        except UnicodeEncodeError as error:
            refuse(self.text, "half of a surrogate pair is no character", error.start)

    def _value(self, event: Any, depth: int) -> Node:
        """Return the value that begins with `event`; what a collection holds only where `depth` is left."""
        start = event.start_mark.index
        self._count += 1
        if self._count > MAX_NODES:
            refuse(self.text, f"it has over {MAX_NODES:,} entries", start)
        if not isinstance(event, self.opening):
            self._end = event.end_mark.index
            return Node("scalar", start, start, end=self._end, text=self._text(event))
        node = Node("mapping" if isinstance(event, self._mapping) else "sequence", start, start)
        if depth:
            self._fill(node, depth - 1)
        else:
            self._skip()
        node.end = self._end
        return node

    def _text(self, event: Any) -> str:
        value: str = getattr(event, "value", "")  # an alias has none
        # A plain scalar's style is "" in libyaml's events, and None in those of the parser in Python.
        is_null = value in _NULLS and not event.style
        return "" if is_null else value[: self._max_scalar]

    def _fill(self, node: Node, depth: int) -> None:
        while not isinstance(event := next(self._events), self.closing):
            key, anchor = "", event.start_mark.index
            if node.kind == "mapping":
                key = self.key(event, node, depth)
                event = next(self._events)
            child = self._value(event, depth)
            child.key, child.anchor = key, anchor
            node.children.append(child)
        self._close(event)

    def key(self, event: Any, parent: Node, depth: int) -> str:
        """Return the key of `parent` that begins with `event`; empty where it is no scalar."""
        if isinstance(event, self.opening):
            self._value(event, depth)
        return getattr(event, "value", "")

    def _skip(self) -> None:
        """Pass over what a collection holds."""
        level = 1
        while level:
            event = next(self._events)
            if isinstance(event, self.opening):
                level += 1
                if level > MAX_DEPTH:
                    refuse(self.text, f"it nests deeper than {MAX_DEPTH} levels", event.start_mark.index)
            elif isinstance(event, self.closing):
                level -= 1
                self._close(event)
            else:
                self._end = event.end_mark.index

    def _close(self, event: Any) -> None:
        # The end of a block collection is where the next token begins; only a closing bracket has a length.
        if event.end_mark.index > event.start_mark.index:
            self._end = event.end_mark.index


def read_json(text: str) -> list[Node]:
    """Return the root of each value in `text`: one in a JSON file (RFC 8259), one a line in JSON Lines.

    Comments and commas behind a last entry, as editors' settings have them, are passed over.

    Raises
    ------
    MalformedSource
        If a value is not JSON, nests too deep for the decoder, or has too many entries in its upper levels.
    """
    try:
        with suppress(JSONDecodeError):
            return _JsonReader(text).values()
        return _JsonReader(_strict(text)).values()
    except JSONDecodeError as error:
        refuse(text, error.msg, error.pos)


def _strict(text: str) -> str:
    """Return `text` with blanks where comments and last commas are; all else stays where it was."""
    bare = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else _NOT_LINE_END.sub(" ", m[0]), text)
    return _LAST_COMMA.sub(lambda m: m[0] if m[0][0] == '"' else " ", bare)


class _JsonReader:
    def __init__(self, text: str) -> None:
        self._text, self._count = text, 0
        # Numbers stay texts: converting one of thousands of digits is refused or slow, and none is reckoned with.
        self._decode = JSONDecoder(strict=False, parse_int=str, parse_float=str).raw_decode

    def values(self) -> list[Node]:
        """Return all values, one after the other."""
        found: list[Node] = []
        position = self._blank(0)
        try:
            while position < len(self._text):
                found.append(self._value(position, DEPTH))
                position = self._blank(found[-1].end)
        except RecursionError:
            refuse(self._text, "it nests too deep", position)
        return found

    def _value(self, position: int, depth: int) -> Node:
        self._count += 1
        if self._count > MAX_NODES:
            refuse(self._text, f"it has over {MAX_NODES:,} entries", position)
        kind = _JSON_KINDS.get(self._sign(position), "scalar")
        node = Node(kind, position, position)
        # A list is entered for the sake of the collections in it.
        holds_collections = kind == "sequence" and self._sign(self._blank(position + 1)) in _JSON_KINDS
        if depth and (kind == "mapping" or holds_collections):
            self._fill(node, depth - 1)
            return node
        value, node.end = self._decode(self._text, position)
        if kind == "scalar" and value is not None:
            node.text = str(value)[:MAX_SCALAR]
        return node

    def _fill(self, node: Node, depth: int) -> None:
        closing = "}" if node.kind == "mapping" else "]"
        position = self._blank(node.start + 1)
        while self._sign(position) != closing:
            key, anchor = "", position
            if node.kind == "mapping":
                self._require('"', position, "Expecting property name enclosed in double quotes")
                key, end = self._decode(self._text, position)
                position = self._blank(end)
                self._require(":", position, "Expecting ':' delimiter")
                position = self._blank(position + 1)
            child = self._value(position, depth)
            child.key, child.anchor = key, anchor
            node.children.append(child)
            position = self._blank(child.end)
            if self._sign(position) != closing:  # behind a last comma, the closing bracket may stand
                self._require(",", position, "Expecting ',' delimiter")
                position = self._blank(position + 1)
        node.end = position + 1

    def _require(self, sign: str, position: int, message: str) -> None:
        if self._sign(position) != sign:
            raise JSONDecodeError(message, self._text, position)

    def _sign(self, position: int) -> str:
        return self._text[position : position + 1]

    def _blank(self, position: int) -> int:
        match = _BLANK.match(self._text, position)
        return match.end() if match else position
