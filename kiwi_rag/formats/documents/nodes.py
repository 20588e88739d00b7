"""YAML and JSON as nodes that know where they stand, down to the depth at which sections are cut.

Offsets count characters from 0. They come from the parsers (libyaml's events, the standard library's JSON decoder), not
from a search of the text. YAML is read event by event: nothing recurses, an anchor is never followed, a repeated key is
two entries, and what lies below `DEPTH` is checked but not kept. libyaml counts U+0085, U+2028 and a lone CR as line
ends (YAML 1.1 §4.2); whoever needs lines counts them from the offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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
    builder = _Builder(text)
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


class _Builder:
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
