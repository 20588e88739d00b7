"""A YAML metadata block: capped, without anchors, aliases, tags or repeated keys, every scalar as it is written.

No scalar is interpreted: ``version: 1.10`` stays ``"1.10"``, a date stays as written, ``no`` is not false. So
metadata is the same text for signers and verifiers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from kiwi_rag.formats.outcome import MalformedSource

if TYPE_CHECKING:
    from yaml import BaseLoader, Event, MappingNode, Node

MAX_BYTES = 16 * 1024
MAX_DEPTH = 6
MAX_NODES = 1_000
_NULLS = frozenset({"null", "Null", "NULL", "~"})


def parse_yaml(text: str) -> dict[str, Any]:
    """Return the mapping in `text`: strings, lists and dictionaries of strings only.

    Raises
    ------
    MalformedSource
        If a cap is exceeded, an anchor, alias or tag occurs, a key is repeated, the text is not YAML, or it is not
        a mapping; with the line within `text`.
    """
    import yaml

    if len(text.encode()) > MAX_BYTES:
        _refuse("size", f"the metadata block has over {MAX_BYTES} bytes", 1, "move text into the body")
    try:
        node = yaml.compose(text, Loader=_strict_loader())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        _refuse(
            "", f"the metadata is not YAML: {error.problem or error.context}", line, "quote values that hold ':' or '#'"
        )
    except yaml.YAMLError as error:
        _refuse("", f"the metadata is not YAML: {error}", 1, "remove special characters")
    return _root(node)


def _root(node: Node | None) -> dict[str, Any]:
    from yaml import MappingNode

    if node is None:
        return {}
    if not isinstance(node, MappingNode):
        _refuse("mapping", "the metadata block is not a mapping of keys to values", 1, "write it as 'key: value' lines")
    return _mapping(node)


@lru_cache(maxsize=1)
def _strict_loader() -> type[BaseLoader]:
    """Return a loader that refuses each event as it is parsed, before anything is built of it."""
    import yaml

    class StrictLoader(yaml.BaseLoader):
        depth = nodes = 0

        def get_event(self) -> Event:
            event: Event = super().get_event()  # type: ignore[no-untyped-call]
            _check_event(event)
            opens = isinstance(event, yaml.CollectionStartEvent)
            self.depth += opens - isinstance(event, yaml.CollectionEndEvent)
            self.nodes += opens or isinstance(event, yaml.ScalarEvent)
            if self.depth > MAX_DEPTH or self.nodes > MAX_NODES:
                message = f"the metadata nests deeper than {MAX_DEPTH} or has over {MAX_NODES} values"
                _refuse("size", message, _line(event))
            return event

    return StrictLoader


def _check_event(event: Event) -> None:
    import yaml

    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        _refuse("alias", "the metadata uses a YAML anchor or alias", _line(event), "write the value out")
    if getattr(event, "tag", None):
        _refuse("tag", f"the metadata uses the YAML tag {event.tag!r}", _line(event), "remove the tag")  # type: ignore[attr-defined]


def _value(node: Node) -> Any:
    from yaml import MappingNode, ScalarNode, SequenceNode

    if isinstance(node, MappingNode):
        return _mapping(node)
    if isinstance(node, SequenceNode):
        return [_value(child) for child in node.value]
    plain_null = isinstance(node, ScalarNode) and node.style is None and node.value in _NULLS
    return "" if plain_null else node.value


def _mapping(node: MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        name = _value(key)
        if not isinstance(name, str):
            _refuse("mapping", "a metadata key is not plain text", key.start_mark.line + 1)
        if name in found:
            _refuse("duplicate-key", f"the metadata key {name!r} occurs twice", key.start_mark.line + 1, "keep one")
        found[name] = _value(value)
    return found


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _refuse(kind: str, message: str, line: int, hint: str = "simplify the metadata") -> NoReturn:
    raise MalformedSource(f"form.yaml-{kind}" if kind else "form.yaml", message, line, hint)
