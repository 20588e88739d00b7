"""AsyncAPI 2 and 3 → a section for each channel with its messages, each operation, message, schema and definition.

Sources of the format: the AsyncAPI Specification 2.6.0 and 3.0.0 (https://www.asyncapi.com/docs/reference).
"""

from __future__ import annotations

from kiwi_rag.formats.documents.cuts import Cut, named
from kiwi_rag.formats.documents.nodes import Node
from kiwi_rag.formats.documents.openapi import components, entries

_ACTIONS = ("publish", "subscribe")
_KINDS = {"schemas": "schema", "messages": "message", "channels": "channel", "operations": "channel"}


def is_asyncapi(root: Node) -> bool:
    """Say whether a document says of itself that it is AsyncAPI: ``asyncapi`` with a version."""
    return root.said("asyncapi")[:1].isdigit()


def cuts_of(root: Node) -> list[Cut]:
    """Return where the sections of an AsyncAPI document begin. Operations of version 3 are of the kind ``channel``."""
    found: list[Cut] = []
    for child in root.children:
        cuts = _top(child)
        if not (found and found[-1].kind == "info" and cuts[0].kind == "info"):
            found += cuts
    return found


def _top(node: Node) -> list[Cut]:
    if node.key == "channels":
        return entries(node, lambda channel: [Cut(channel.anchor, "channel", (_channel_name(channel),))])
    if node.key == "operations":
        return entries(node, lambda operation: [Cut(operation.anchor, "channel", (_operation_name(operation),))])
    if node.key == "components":
        return components(node, _KINDS)
    return [Cut(node.anchor, "info", ("info",))]


def _channel_name(channel: Node) -> str:
    """Return what a reader asks for: what is done, the address, and what it is about."""
    actions = [action for action in _ACTIONS if channel.child(action)]
    about = _first(channel, ("title",), ("summary",), *((action, "summary") for action in actions), ("description",))
    # Several channels may have one address, and a null address is an answer's, decided at run time.
    address = channel.said("address")
    place = channel.key if address in {"", channel.key} else f"{address} ({channel.key})"
    name = " ".join([*actions, place])
    return named(f"{name} — {about}" if about else name)


def _operation_name(operation: Node) -> str:
    about = _first(operation, ("title",), ("summary",), ("description",))
    name = " ".join(part for part in (operation.said("action"), operation.key) if part)
    return named(f"{name} — {about}" if about else name)


def _first(node: Node, *paths: tuple[str, ...]) -> str:
    """Return the first sentence of what one of `paths` says."""
    said = next((said for path in paths if (said := node.said(*path))), "")
    return said.split(". ", 1)[0]
