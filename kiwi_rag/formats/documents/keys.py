"""Metadata in YAML or JSON → a section for each top-level key, and for each record of a long list or mapping.

Capabilities, tickets, events, compose files, manifests: whatever has keys. Short neighbours (``name``, ``version``)
share a section, for a line alone says little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kiwi_rag.formats.documents.cuts import Cut, named, starting_at
from kiwi_rag.formats.documents.nodes import Node

LONG_VALUE = 1_000
LONG_RECORD = 4_000
_SHORT = 80
_LONG_RUN = 800
_NAMES = 20
_IDS = ("id", "key", "code", "name", "title", "slug", "path", "$id")
_TITLES = ("title", "name", "summary", "label")


def cuts_of(documents: Sequence[Node]) -> list[Cut]:
    """Return where sections begin: by top-level key, and by document where a stream holds several."""
    if len(documents) == 1:
        return _root(documents[0])
    return document_cuts(documents)


def document_cuts(documents: Sequence[Node]) -> list[Cut]:
    """Return the cuts of a stream of documents, each under what it calls itself."""
    return list(_entries(documents, (), LONG_RECORD))


def record_name(node: Node, number: int) -> str:
    """Return what a record calls itself: its id and title, or `number`, its place in the list."""
    if node.kind == "scalar":
        return named(node.text) or str(number)
    kind, name = node.said("kind"), node.said("metadata", "name")
    if kind and name:
        return named(f"{kind} {name}")
    own = next((said for key in _IDS if (said := node.said(key))), "") or str(number)
    title = next((said for key in _TITLES if (said := node.said(key)) and said != own), "")
    return named(f"{own} — {title}" if title else own)


def _root(node: Node) -> list[Cut]:
    cuts = list(_entries(node.children, (), LONG_VALUE))
    return starting_at(cuts, node.anchor) or [Cut(node.anchor, "definition", ())]


def _entries(nodes: Sequence[Node], above: tuple[str, ...], limit: int) -> Iterator[Cut]:
    """Yield the cuts of each entry, one for a run of short ones; an entry longer than `limit` is divided."""
    for number, run in _runs(nodes):
        if len(run) == 1:
            yield from _entry(run[0], (*above, _name(run[0], number)), limit)
        else:
            names = ", ".join(_name(node, number + index) for index, node in enumerate(run[:_NAMES]))
            yield Cut(run[0].anchor, "definition", (*above, named(names)))


def _runs(nodes: Sequence[Node]) -> Iterator[tuple[int, list[Node]]]:
    """Yield entries with the place of the first, from 1: short neighbours together, every other one alone."""
    begun = 0
    for place, node in enumerate(nodes):
        if place == begun:
            continue
        if not (_is_short(node) and _is_short(nodes[begun]) and node.end - nodes[begun].start <= _LONG_RUN):
            yield begun + 1, list(nodes[begun:place])
            begun = place
    if nodes:
        yield begun + 1, list(nodes[begun:])


def _entry(node: Node, path: tuple[str, ...], limit: int) -> list[Cut]:
    if node.end - node.start > limit and _holds_records(node):
        return starting_at(list(_entries(node.children, path, LONG_RECORD)), node.anchor)
    return [Cut(node.anchor, "definition", path)]


def _holds_records(node: Node) -> bool:
    collections = sum(child.is_collection for child in node.children)
    return len(node.children) > 1 and 2 * collections >= len(node.children)


def _is_short(node: Node) -> bool:
    return node.end - node.start <= _SHORT


def _name(node: Node, number: int) -> str:
    return named(node.key) or record_name(node, number)
