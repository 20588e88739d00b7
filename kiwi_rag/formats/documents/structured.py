"""YAML and JSON files: what their root says they are, their sections, and the service and domain they name.

OpenAPI has a section for each operation, each schema, what describes the API, and each definition; AsyncAPI one for
each channel with its messages, each operation, message, schema and definition; everything else one for each key
(`kiwi_rag.formats.documents.cuts`). References (``$ref``) are text like any other: nothing is resolved, so one that
refers to itself does no harm. Sources: the OpenAPI Specification 2.0, 3.0.4 and 3.1.1 (https://spec.openapis.org/oas/),
the AsyncAPI Specification 2.6.0 and 3.0.0 (https://www.asyncapi.com/docs/reference).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from kiwi_rag.formats.documents.cuts import Cut, cuts_of, document_cuts, named, sections_of, starting_at
from kiwi_rag.formats.nodes import Node, read_json, read_yaml
from kiwi_rag.formats.outcome import MalformedSource, ParsedDocument

_MAX_TITLE = 200
METHODS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace", "query"})
_DEFINITIONS = frozenset({"parameters", "responses", "securityDefinitions"})
_ACTIONS = ("publish", "subscribe")
_ASYNC_KINDS = {"schemas": "schema", "messages": "message", "channels": "channel", "operations": "channel"}


def parse(text: str, language: str) -> ParsedDocument:
    """Return what a YAML or JSON text holds; `language` is ``yaml`` or ``json``.

    A text that opens with a bracket is tried as JSON first, whatever it is called: JSON is read many times faster, and
    it allows what libyaml does not (keys of any length, surrogate pairs).

    Raises
    ------
    MalformedSource
        If it is neither, with the line of the error.
    """
    language, documents = _read(text, language)
    file_type, cuts = _cuts(documents, language, text)
    root = documents[0] if documents else None
    sections = sections_of(text, cuts)
    return ParsedDocument(file_type, _title(root, text), sections, _said(root, "service"), _said(root, "domain"))


def _read(text: str, language: str) -> tuple[str, list[Node]]:
    if language == "yaml" and text[:4_096].lstrip()[:1] not in {"{", "["}:
        return "yaml", _kept(read_yaml(text))
    try:
        return "json", read_json(text)
    except MalformedSource:
        if language == "json":
            raise
    return "yaml", _kept(read_yaml(text))


def _kept(documents: Sequence[Node]) -> list[Node]:
    """Return the documents that say something: a last ``---`` opens one that does not."""
    return [node for node in documents if node.is_collection or node.text]


def _cuts(documents: Sequence[Node], language: str, text: str) -> tuple[str, list[Cut]]:
    if not documents:
        return language, [Cut(0, "definition", ())] if text else []
    root = documents[0]
    for file_type, keys, top in (("openapi", ("openapi", "swagger"), _openapi), ("asyncapi", ("asyncapi",), _asyncapi)):
        if any(root.said(key)[:1].isdigit() for key in keys):  # it says so of itself, with a version
            return file_type, _described(root, top) + document_cuts(documents[1:])
    return language, cuts_of(documents)


def _title(root: Node | None, text: str) -> str:
    """Return the title the root gives, or else the comment that the file begins with."""
    paths = (("info", "title"), ("title",), ("name",), ("metadata", "name"))
    said = next((said for path in paths if root and (said := root.said(*path))), "")
    first = text[:_MAX_TITLE].lstrip().split("\n", 1)[0]
    return said[:_MAX_TITLE] or (first.lstrip("#").strip() if first.startswith("#") else "")


def _said(root: Node | None, what: str) -> str:
    """Return the service or domain that the root or its ``info`` names."""
    paths = (("info", f"x-{what}"), (f"x-{what}",), (what,))
    return next((said[:_MAX_TITLE] for path in paths if root and (said := root.said(*path))), "")


def _described(root: Node, top: Callable[[Node], list[Cut]]) -> list[Cut]:
    """Return the cuts of each entry of an API's description; neighbours about the API as a whole are one section."""
    found: list[Cut] = []
    for child in root.children:
        cuts = top(child)
        if not (found and found[-1].kind == "info" and cuts[0].kind == "info"):
            found += cuts
    return found


def _entries(parent: Node, cut: Callable[[Node], Iterable[Cut]], kind: str = "definition") -> list[Cut]:
    """Return the cuts of each entry of `parent`, whose own key goes with the first; one of `kind` if it has none."""
    cuts = [found for child in parent.children for found in cut(child)] if parent.is_collection else []
    return starting_at(cuts, parent.anchor) or [Cut(parent.anchor, kind, (named(parent.key),))]


def _components(parent: Node, kinds: dict[str, str]) -> list[Cut]:
    """Return the cuts of ``components``: each schema, message or other part, by the kind its group has."""
    return _entries(parent, lambda group: _named_entries(group, kinds.get(group.key, "definition")))


def _named_entries(group: Node, kind: str) -> list[Cut]:
    """Return a cut for each entry of a mapping, under the mapping's key and its own."""
    if group.kind != "mapping":
        return [Cut(group.anchor, "definition", (named(group.key),))]
    return _entries(group, lambda entry: [Cut(entry.anchor, kind, (named(group.key), named(entry.key)))])


def _openapi(node: Node) -> list[Cut]:
    if node.key == "paths":
        return _entries(node, lambda path: _path("endpoint", (), path))
    if node.key == "webhooks":
        return _entries(node, lambda path: _path("definition", ("webhooks",), path))
    if node.key == "components":
        return _components(node, {"schemas": "schema"})
    if node.key == "definitions":
        return _named_entries(node, "schema")
    return _named_entries(node, "definition") if node.key in _DEFINITIONS else [Cut(node.anchor, "info", ("info",))]


def _path(kind: str, above: tuple[str, ...], path: Node) -> list[Cut]:
    """Return a cut for each operation; the path's key, and what precedes its first operation, go with that one."""
    cuts = list(_operations(kind, above, path))
    return starting_at(cuts, path.anchor) or [Cut(path.anchor, "definition", (*above, named(path.key)))]


def _operations(kind: str, above: tuple[str, ...], path: Node) -> Iterator[Cut]:
    begun = between = False
    for entry in path.children if path.kind == "mapping" else ():
        if entry.key.lower() in METHODS:
            yield Cut(entry.anchor, kind, (*above, _endpoint_name(path, entry)))
            begun, between = True, False
        elif begun and not between:
            yield Cut(entry.anchor, "definition", (*above, named(path.key), named(entry.key)))
            between = True


def _endpoint_name(path: Node, operation: Node) -> str:
    about = operation.said("summary") or operation.said("operationId")
    name = f"{operation.key.upper()} {path.key}"
    return named(f"{name} — {about}" if about else name)


def _asyncapi(node: Node) -> list[Cut]:
    if node.key == "channels":
        return _entries(node, lambda channel: [Cut(channel.anchor, "channel", (_channel_name(channel),))])
    if node.key == "operations":
        return _entries(node, lambda operation: [Cut(operation.anchor, "channel", (_operation_name(operation),))])
    if node.key == "components":
        return _components(node, _ASYNC_KINDS)
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
