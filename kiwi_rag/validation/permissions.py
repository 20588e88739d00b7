"""Step 4: a directive asks in known verbs and resources; a script declares what its code can do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kiwi_rag.formats.outcome import MalformedSource
from kiwi_rag.formats.script import parse_module
from kiwi_rag.model import Finding, Item
from kiwi_rag.refs import ItemType
from kiwi_rag.validation import capabilities
from kiwi_rag.validation.structure import line_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VERBS = _words(
    "* execute run call spawn fetch load search read list sign verify write create update edit delete publish copy"
)
RESOURCES = _words(
    "* tool directive script knowledge item registry filesystem file directory folder process shell subprocess command "
    "network http url web git database env environment secret mcp server thread agent model kiwi kiwi-mcp"
)
# Other words for what `capabilities` tells apart, and grants that need no capability.
GRANTS: Mapping[str, frozenset[str]] = {
    "subprocess": frozenset({"subprocess"}),
    "shell": frozenset({"subprocess"}),
    "process": frozenset({"subprocess"}),
    "network": frozenset({"network"}),
    "http": frozenset({"network"}),
    "socket": frozenset({"network"}),
    "eval": frozenset({"eval"}),
    "exec": frozenset({"eval"}),
    "write": frozenset({"write"}),
    "filesystem": frozenset({"write"}),
    "native": frozenset({"native"}),
    "read": frozenset(),
    "environment": frozenset(),
    "env": frozenset(),
    "*": frozenset(capabilities.CAPABILITIES),
}
MAX_PLACES = 20


def check(item: Item, path: str = "") -> list[Finding]:
    """Return permissions that are unknown, too wide, or missing."""
    if item.ref.item_type is ItemType.DIRECTIVE:
        return [f for p in item.metadata.get("permissions", []) for f in _directive(item, p, path)][:MAX_PLACES]
    if item.ref.item_type is ItemType.SCRIPT:
        return [*_script_grants(item, path), *_undeclared(item, path)]
    return []


def _directive(item: Item, permission: Mapping[str, str], path: str) -> Iterator[Finding]:
    verb, resource, pattern = permission["verb"], permission["resource"], permission["pattern"]
    line = line_of(item, r"<permissions?\b")
    if verb not in VERBS:
        hint = f"use one of {', '.join(sorted(VERBS - {'*'}))}"
        yield Finding("permissions.verb", f"unknown permission verb {verb[:80]!r}", line, path, hint)
    if resource not in RESOURCES:
        hint = f"use one of {', '.join(sorted(RESOURCES - {'*'}))}"
        yield Finding("permissions.resource", f"unknown permission resource {resource[:80]!r}", line, path, hint)
    if not pattern or " " in pattern:
        message = f"the permission pattern {pattern[:80]!r} names nothing"
        yield Finding("permissions.pattern", message, line, path, "write one id or glob an element", "warning")
    if verb == resource == "*" or (resource, pattern) == ("*", "*"):
        message = "the directive may do anything" if verb == "*" else f"the directive may {verb} anything"
        yield Finding("permissions.wildcard", message, line, path, "name the tools it needs", "warning")


def _script_grants(item: Item, path: str) -> Iterator[Finding]:
    line = line_of(item, r"^__permissions__")
    for name in item.metadata.get("permissions", []):
        if name not in GRANTS:
            hint = f"use of {', '.join(sorted(GRANTS))} what applies"
            yield Finding("permissions.unknown", f"unknown permission {name[:80]!r}", line, path, hint)
        elif name == "*":
            message = "the script declares that it may do anything"
            yield Finding("permissions.wildcard", message, line, path, "declare what it needs", "warning")


def _undeclared(item: Item, path: str) -> Iterator[Finding]:
    granted = _granted(item.metadata.get("permissions", []))
    try:
        found = capabilities.uses(parse_module(item.content))
    except (MalformedSource, RecursionError, MemoryError) as error:
        yield Finding("permissions.unreadable", f"the script cannot be read: {error}", 0, path, "simplify it")
        return
    missing = [use for use in found if use.capability not in granted]
    for use in missing[:MAX_PLACES]:
        message = f"{use.name[:80]} needs the permission {use.capability!r}, which is not declared"
        hint = f'add "{use.capability}" to __permissions__, or do without'
        yield Finding("permissions.undeclared", message, use.line, path, hint)


def _granted(names: Iterable[str]) -> set[str]:
    return {capability for name in names for capability in GRANTS.get(name, ())}
