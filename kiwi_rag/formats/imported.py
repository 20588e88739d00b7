"""What files of other tools become when they are imported: their type, their id, and metadata that is not strict YAML.

Notes, ``AGENTS.md``, Cursor's rules, Claude's commands and agents and Copilot's prompts are knowledge. A directive is
recognised by its XML block, a script by its folder or its metadata.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from kiwi_rag.errors import InvalidItemId
from kiwi_rag.formats import directive, markdown
from kiwi_rag.formats.bump import add_metadata
from kiwi_rag.formats.knowledge import front_matter
from kiwi_rag.formats.outcome import FindingList, MalformedSource
from kiwi_rag.model import ItemType, check_item_id

MARKDOWN = frozenset({".md", ".markdown", ".mdc"})
# Of a path: what it is. The first pattern that is found counts.
_KINDS = (
    (r"\.mdc$", "Cursor rule"),
    (r"(^|/)\.claude/commands/", "Claude command"),
    (r"(^|/)\.claude/agents/", "Claude agent"),
    (r"\.prompt\.md$", "Copilot prompt"),
    (r"(^|/)\.github/(copilot-instructions\.md$|instructions/)", "Copilot instructions"),
    (r"(^|/)(AGENTS|CLAUDE|GEMINI)(\.local)?\.md$", "agent instructions"),
)
_SCRIPT_METADATA = re.compile(r"^__(version|description|category|author|tags|permissions)__\s*(:[^=]*)?=", re.MULTILINE)
_SUFFIXES = re.compile(r"(\.(prompt|instructions|chatmode|agent))?\.\w+$", re.IGNORECASE)
_SPELLED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "ø": "o", "ł": "l", "đ": "d"})
_KEY = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*))?$")


def recognise(path: str, content: str) -> tuple[str, ItemType] | None:
    """Return what a file is, in words, and the type of item that it becomes; None if it is none of them."""
    if path.lower().endswith(".py"):
        is_script = "scripts" in PurePosixPath(path).parts or _SCRIPT_METADATA.search(content)
        return ("script", ItemType.SCRIPT) if is_script else None
    if "<directive" in content and _is_directive(content):
        return "directive", ItemType.DIRECTIVE
    kind = next((kind for pattern, kind in _KINDS if re.search(pattern, path)), "note")
    return kind, ItemType.KNOWLEDGE


def _is_directive(content: str) -> bool:
    try:
        directive.block_span(content)
    except MalformedSource:
        return False
    return True


def id_of(path: str) -> str:
    """Return the id that is made of a path: its steps in lower-case ASCII, other characters as ``-``, without suffix.

    Raises
    ------
    InvalidItemId
        When nothing is left of a step, or the id is too long.
    """
    *folders, name = PurePosixPath(path).parts
    steps = [*folders, _SUFFIXES.sub("", name)]
    segments = [segment_of(step) for step in steps]
    if "" in segments:
        lost = steps[segments.index("")]
        raise InvalidItemId(f"{lost!r} has no ASCII letter or digit for an id", hint="rename the file or folder")
    return check_item_id("/".join(segments))


def segment_of(name: str) -> str:
    """Return a name as one segment of an id; empty where nothing of it can be."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", name.lower()).translate(_SPELLED))
    return re.sub(r"[^a-z0-9_-]+", "-", "".join(c for c in plain if not unicodedata.combining(c))).strip("-_")


def loose_metadata(content: str) -> dict[str, Any]:
    """Return the metadata at the top of a file as other tools read it: texts, and words for ``tags`` and ``globs``."""
    block = front_matter(content, FindingList())
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for line in block.text.split("\n") if block else ():
        if match := _KEY.match(line):
            values = found.setdefault(match[1], [])
        values.append(_plain(match[2] or "" if match else line))
    words = {name: _words(found.get(name, [])) for name in ("tags", "globs")}
    return {name: " ".join(filter(None, parts)) for name, parts in found.items()} | words


def _plain(value: str) -> str:
    """Return a line's value without the marks of YAML around it."""
    text = value.strip()
    text = "" if re.fullmatch(r"[|>][+-]?", text) else text.removeprefix("- ").strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _words(lines: list[str]) -> list[str]:
    words = (word.strip(" \"'") for line in lines for word in line.strip("[]").split(","))
    return [word for word in words if word]


def rewritten(content: str, values: Mapping[str, Any]) -> str:
    """Return a note whose metadata is written as strict YAML; `values` are for what it does not declare.

    Its version, its category and its name, which is not that of its file, are not kept; the name may be its title.
    """
    block, loose = front_matter(content, FindingList()), loose_metadata(content)
    body = content[markdown.line_offset(content, block.end_line + 1) :] if block else content
    kept = {key: value for key, value in loose.items() if value and key not in ("name", "category", "version")}
    return add_metadata(ItemType.KNOWLEDGE, body.lstrip("\r\n"), {"title": loose.get("name", ""), **values, **kept})
