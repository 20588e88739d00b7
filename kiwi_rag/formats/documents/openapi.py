"""OpenAPI 2.0, 3.0 and 3.1 → a section for each operation, each schema, what describes the API, and each definition.

Sources of the format: the OpenAPI Specification 2.0, 3.0.4 and 3.1.1 (https://spec.openapis.org/oas/). References
(``$ref``) are text like any other: nothing is resolved, so one that refers to itself does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kiwi_rag.formats.documents.cuts import Cut, named, starting_at
from kiwi_rag.formats.documents.nodes import Node

METHODS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace", "query"})
_DEFINITIONS = frozenset({"parameters", "responses", "securityDefinitions"})


def is_openapi(root: Node) -> bool:
    """Say whether a document says of itself that it is OpenAPI: ``openapi`` or ``swagger`` with a version."""
    return any(root.said(key)[:1].isdigit() for key in ("openapi", "swagger"))


def cuts_of(root: Node) -> list[Cut]:
    """Return where the sections of an OpenAPI document begin."""
    found: list[Cut] = []
    for child in root.children:
        cuts = _top(child)
        # Neighbours that describe the API as a whole are one section.
        if not (found and found[-1].kind == "info" and cuts[0].kind == "info"):
            found += cuts
    return found


def entries(parent: Node, cut: Callable[[Node], Iterable[Cut]], kind: str = "definition") -> list[Cut]:
    """Return the cuts of each entry of `parent`, whose own key goes with the first; one of `kind` if it has none."""
    cuts = [found for child in parent.children for found in cut(child)] if parent.is_collection else []
    return starting_at(cuts, parent.anchor) or [Cut(parent.anchor, kind, (named(parent.key),))]


def components(parent: Node, kinds: dict[str, str]) -> list[Cut]:
    """Return the cuts of ``components``: each schema, message or other part, by the kind its group has."""
    return entries(parent, lambda group: named_entries(group, kinds.get(group.key, "definition")))


def named_entries(group: Node, kind: str) -> list[Cut]:
    """Return a cut for each entry of a mapping, under the mapping's key and its own."""
    if group.kind != "mapping":
        return [Cut(group.anchor, "definition", (named(group.key),))]
    return entries(group, lambda entry: [Cut(entry.anchor, kind, (named(group.key), named(entry.key)))])


def _top(node: Node) -> list[Cut]:
    if node.key == "paths":
        return entries(node, lambda path: _path("endpoint", (), path))
    if node.key == "webhooks":
        return entries(node, lambda path: _path("definition", ("webhooks",), path))
    if node.key == "components":
        return components(node, {"schemas": "schema"})
    if node.key == "definitions":
        return named_entries(node, "schema")
    return named_entries(node, "definition") if node.key in _DEFINITIONS else [Cut(node.anchor, "info", ("info",))]


def _path(kind: str, above: tuple[str, ...], path: Node) -> list[Cut]:
    """Return a cut for each operation; the path's key, and what precedes its first operation, go with that one."""
    cuts = list(_operations(kind, above, path))
    return starting_at(cuts, path.anchor) or [Cut(path.anchor, "definition", (*above, named(path.key)))]


def _operations(kind: str, above: tuple[str, ...], path: Node) -> Iterator[Cut]:
    begun = between = False
    for entry in path.children if path.kind == "mapping" else ():
        if entry.key.lower() in METHODS:
            yield Cut(entry.anchor, kind, (*above, _operation_name(path, entry)))
            begun, between = True, False
        elif begun and not between:
            yield Cut(entry.anchor, "definition", (*above, named(path.key), named(entry.key)))
            between = True


def _operation_name(path: Node, operation: Node) -> str:
    about = operation.said("summary") or operation.said("operationId")
    name = f"{operation.key.upper()} {path.key}"
    return named(f"{name} — {about}" if about else name)
