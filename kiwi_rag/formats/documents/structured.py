"""YAML and JSON files: what their root says they are, their sections, and the service and domain they name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kiwi_rag.formats.documents import ParsedDocument, asyncapi, keys, openapi
from kiwi_rag.formats.documents.cuts import Cut, sections_of
from kiwi_rag.formats.documents.json_nodes import read_json
from kiwi_rag.formats.documents.nodes import Node, read_yaml
from kiwi_rag.formats.outcome import MalformedSource

_MAX_TITLE = 200
_DESCRIPTIONS: tuple[tuple[str, Callable[[Node], bool], Callable[[Node], list[Cut]]], ...] = (
    ("openapi", openapi.is_openapi, openapi.cuts_of),
    ("asyncapi", asyncapi.is_asyncapi, asyncapi.cuts_of),
)


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
    for file_type, is_one, cuts_of in _DESCRIPTIONS:
        if is_one(documents[0]):
            return file_type, cuts_of(documents[0]) + keys.document_cuts(documents[1:])
    return language, keys.cuts_of(documents)


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
