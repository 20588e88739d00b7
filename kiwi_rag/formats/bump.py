"""Another version for a file: the declared one replaced where it stands, and nothing else touched."""

from __future__ import annotations

from kiwi_rag.errors import UsageError
from kiwi_rag.formats import directive, knowledge, script
from kiwi_rag.formats.outcome import MalformedSource
from kiwi_rag.refs import ItemType

_SPANS = {
    ItemType.DIRECTIVE: directive.version_span,
    ItemType.SCRIPT: script.version_span,
    ItemType.KNOWLEDGE: knowledge.version_span,
}


def with_version(item_type: ItemType, content: str, version: str) -> str:
    """Return `content` with its declared version replaced by `version`.

    Raises
    ------
    UsageError
        If the content declares no version, or cannot be read.
    """
    try:
        span = _SPANS[item_type](content)
    except MalformedSource as error:
        raise UsageError(f"the version cannot be changed: {error.message}", hint=error.hint) from error
    if span is None:
        raise UsageError(f"this {item_type} declares no version", hint="declare one, such as 1.0.0")
    return content[: span[0]] + version + content[span[1] :]
