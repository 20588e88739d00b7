"""Step 3: a SemVer version and a description, category and author, and lengths that fit a result list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kiwi_rag.model import Finding, Item, Severity
from kiwi_rag.refs import ItemType
from kiwi_rag.validation import bounds
from kiwi_rag.validation.structure import line_of

MAX_LENGTHS = {"name": 128, "title": 300, "description": 2_000, "category": 200, "author": 200}
MAX_TAGS = 50
MAX_TAG_LENGTH = 64
MAX_VERSION_LENGTH = 64
_PLAIN = ("name", "title", "description", "category", "author", "version")
_CHECKED = {*_PLAIN, "tags"}
_VERSION_LINES = {
    ItemType.DIRECTIVE: r"<directive\b",
    ItemType.SCRIPT: r"^__version__",
    ItemType.KNOWLEDGE: r"^version[ \t]*:",
}


def check(item: Item, path: str = "") -> list[Finding]:
    """Return what is wrong with the metadata of a parsed item."""
    return [
        *_version(item, path),
        *_required(item, path),
        *_lengths(item, path),
        *_tags(item, path),
        *_clean(item, path),
    ]


def _version(item: Item, path: str) -> Iterator[Finding]:
    from semver import Version

    version, line = item.ref.version, line_of(item, _VERSION_LINES[item.ref.item_type])
    if not version:
        yield Finding("metadata.version-missing", "no version is declared", line, path, "declare version 1.0.0")
    elif len(version) > MAX_VERSION_LENGTH or not version.isascii() or not Version.is_valid(version):
        message = f"the version {version[:80]!r} is not a semantic version"
        yield Finding("metadata.version", message, line, path, "write MAJOR.MINOR.PATCH, as in 1.2.0 (semver.org)")


def _required(item: Item, path: str) -> Iterator[Finding]:
    if not item.metadata.get("description"):
        soft = item.ref.item_type is ItemType.KNOWLEDGE and item.metadata.get("title")
        hint = "say in a sentence what it is for: it is what a search is matched against"
        severity: Severity = "warning" if soft else "error"
        yield Finding("metadata.description-missing", "there is no description", 0, path, hint, severity)
    for key in ("category", "author"):
        if not item.metadata.get(key):
            yield Finding(f"metadata.{key}-missing", f"there is no {key}", 0, path, f"add {key}", "warning")


def _lengths(item: Item, path: str) -> Iterator[Finding]:
    for key, limit in MAX_LENGTHS.items():
        length = len(str(item.metadata.get(key, "")))
        if length > limit:
            message = f"the {key} has {length} characters, over {limit}"
            yield Finding("metadata.length", message, line_of(item, rf"\b{key}\b"), path, f"shorten the {key}")


def _tags(item: Item, path: str) -> Iterator[Finding]:
    tags = item.metadata.get("tags", [])
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_LENGTH for tag in tags):
        message = f"over {MAX_TAGS} tags, or one of over {MAX_TAG_LENGTH} characters"
        yield Finding("metadata.tags", message, line_of(item, r"\btags\b"), path, "use fewer and shorter tags")


def _clean(item: Item, path: str) -> Iterator[Finding]:
    r"""Look at decoded values: XML writes any character as ``&#x...;``, YAML as ``\u....``."""
    for key in _PLAIN:
        value = str((item.ref.version or "") if key == "version" else item.metadata.get(key, ""))
        if not bounds.is_clean(value):
            message = f"the {key} holds a control, invisible or direction-changing character"
            yield Finding("metadata.character", message, line_of(item, rf"\b{key}\b"), path, f"retype the {key}")
    if not all(bounds.is_clean(tag) for tag in item.metadata.get("tags", [])):
        message = "a tag holds a control, invisible or direction-changing character"
        yield Finding("metadata.character", message, line_of(item, r"\btags\b"), path, "retype the tags")
    for key in sorted(item.metadata.keys() - _CHECKED):
        if not all(bounds.is_clean(" ".join(text.split())) for text in _texts(item.metadata[key])):
            message = f"{key} holds a control, invisible or direction-changing character"
            yield Finding("metadata.character", message, line_of(item, rf"\b{key}\b"), path, f"retype the {key}")


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _texts(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner)
