"""Steps 0 to 6 of the gate: all that can be said of a candidate from its bytes alone."""

from __future__ import annotations

from collections.abc import Iterator

from kiwi_rag.formats import parse
from kiwi_rag.model import Finding, Item, Severity
from kiwi_rag.refs import ItemType
from kiwi_rag.validation import bounds, hidden, metadata, permissions, secrets, structure


def inspect(
    item_type: ItemType, item_id: str, data: bytes, path: str = "", hidden_severity: Severity = "error"
) -> tuple[Item | None, tuple[Finding, ...]]:
    """Run steps 0 to 6 over a candidate and return the item with every finding, in the order of the steps.

    The item is ``None`` where it cannot be built; the findings then hold at least one error. `hidden_severity` is
    what the tier's policy makes of hidden instructions.
    """
    text, found = bounds.check(data, path)
    if text is None:
        return None, tuple(found)
    found += bounds.check_python_encoding(text, path) if item_type is ItemType.SCRIPT else ()
    outcome = parse(item_type, item_id, text, path)
    found += outcome.findings
    found += _of_item(outcome.item, path) if outcome.item else ()
    found += secrets.check(text, outcome.item.metadata if outcome.item else None, path)
    found += hidden.check(item_type, text, path, hidden_severity)
    return outcome.item, tuple(found)


def _of_item(item: Item, path: str) -> Iterator[Finding]:
    yield from structure.check(item, path)
    yield from metadata.check(item, path)
    yield from permissions.check(item, path)
