"""JSON as nodes: the upper levels are walked here; the standard library's C scanner passes over what lies below."""

from __future__ import annotations

import re
from functools import lru_cache
from json import JSONDecodeError, JSONDecoder
from typing import NoReturn

from kiwi_rag.formats.documents.nodes import DEPTH, MAX_NODES, MAX_SCALAR, Node, malformed

_BLANK = re.compile(r"[ \t\n\r]*")
# A string comes first, so that what looks like a comment or a comma within it is left alone. An unclosed string or
# comment is taken to its end, so that no character is looked at twice.
_STRING = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)")
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_NOT_LINE_END = re.compile(r"[^\n]")


def read_json(text: str) -> list[Node]:
    """Return the root of each value in `text`: one in a JSON file (RFC 8259), one a line in JSON Lines.

    Comments and commas behind a last entry, as editors' settings have them, are passed over.

    Raises
    ------
    MalformedSource
        If a value is not JSON, nests too deep for the decoder, or has too many entries in its upper levels.
    """
    try:
        return _Reader(text).values()
    except JSONDecodeError as error:
        plain = _strict(text)
        if plain == text:
            _refuse(text, error)
    try:
        return _Reader(plain).values()
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


class _Reader:
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
