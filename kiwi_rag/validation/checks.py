"""Steps 0, 2 and 3: bounds (size, encoding, invisible and reordering characters), structure, metadata.

Where an invisible character is legitimate follows Unicode: joiners in UTS #51 (emoji) and UAX #31 §2.3 (scripts that
need them), variation selectors in the Unicode Standard §23.4, direction in UAX #9.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kiwi_rag.formats import directive
from kiwi_rag.formats.outcome import FindingList, line_starts
from kiwi_rag.formats.source import MAX_BYTES
from kiwi_rag.model import Finding, Item, ItemType, Severity

MAX_FINDINGS = 20

_BIDI = "\u202a-\u202e\u2066-\u2069"
_MARKS = "\u200e\u200f\u061c"
_TAGS = "\U000e0000-\U000e007f"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
# Format controls of Duployan shorthand and of Egyptian hieroglyphs.
_SCRIPT_CONTROLS = "\U0001bca0-\U0001bca3\U00013430-\U0001345f"
# The braille pattern without dots.
_BLANK = "\u2800"
_SOFT_HYPHEN = "bounds.soft-hyphen"  # the only one that is a warning
_INVISIBLE = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2028\u2029\u2060-\u2065\u206a-\u206f\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0080-\U000e00ff\U000e01f0-\U000e0fff"
)
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
# Lone carriage returns too: Markdown ends a line there, most other readers do not.
_SUSPECT = re.compile(f"[{_CONTROL}{_BIDI}{_MARKS}{_TAGS}{_SELECTORS}{_INVISIBLE}{_SCRIPT_CONTROLS}{_BLANK}]|\r(?!\n)")
# Pattern, code of the finding, name of the character, hint. The first pattern that matches counts.
_KINDS = (
    (f"[{_CONTROL}\r]", "bounds.control", "control character", "remove it"),
    (f"[{_BIDI}]", "bounds.bidi", "direction-changing character", "remove it; text in one direction needs none"),
    (f"[{_TAGS}]", "bounds.tag", "invisible tag character", "remove it"),
    (f"[{_SELECTORS}]", "bounds.selector", "variation selector without a character that takes it", "remove it"),
    ("\u00ad", _SOFT_HYPHEN, "soft hyphen", "remove it: a search does not find a word that contains one"),
    ("", "bounds.invisible", "invisible character", "remove it"),
)
# A declared encoding as PEP 263 defines it, and the names that Python reads as UTF-8.
_PYTHON_ENCODING = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII)
_PYTHON_BLANK = re.compile(r"[ \t\f]*(?:#|\r?$)")
_UTF8_NAME = re.compile(r"utf[-_]?8(?:[-_]sig)?", re.IGNORECASE)
# Blocks of scripts that are written from right to left.
_RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
# Scripts whose spelling uses joiners: Arabic to Samaritan, Indic to Tibetan, Myanmar, Khmer, Mongolian, and extensions.
_JOINING_SCRIPTS = (
    "\u0600-\u08ff\u0900-\u0fff\u1000-\u109f\u1780-\u18af\u1900-\u1aaf\u1b00-\u1c4f\ua800-\uaaff\uabc0-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00010aff\U00011000-\U00011fff\U0001e900-\U0001e95f"
)
_EMOJI = "\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff"
_MODIFIERS = "\ufe0f\U0001f3fb-\U0001f3ff"
_IDEOGRAPHS = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u303c\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_SELECTED_SCRIPTS = "\u0030\u1000-\u109f\u1820-\u18aa\ua840-\ua877\uaa60-\uaa7f\uff01-\uffee\U00010a00-\U00010aff"
# Characters of `_SUSPECT` with the neighbours that make them legitimate; `_is_legitimate` has the other cases.
_LEGITIMATE = re.compile(
    "|".join([
        "\\A\ufeff",
        f"(?<=[{_JOINING_SCRIPTS}])[\u200c\u200d]",
        f"(?:(?<=[{_EMOJI}])(?<![{_MODIFIERS}])|(?<=[{_EMOJI}][{_MODIFIERS}]))\u200d(?=[{_EMOJI}])",
        "(?<=[\u1820-\u18aa])[\u180b-\u180f]",
        f"(?<=[\U0001bc00-\U0001bca3\U00013000-\U0001345f])[{_SCRIPT_CONTROLS}]",
        f"(?<=[0-9#*{_EMOJI}])[\ufe0e\ufe0f]",
        f"(?<=[{_IDEOGRAPHS}{_SELECTED_SCRIPTS}])[\ufe00-\ufe0d]",
        f"(?<=[{_IDEOGRAPHS}])[\U000e0100-\U000e01ef]",
    ])
)  # fmt: skip
_MAX_BLANKS = 16


def check_bounds(data: bytes, path: str = "") -> tuple[str | None, list[Finding]]:
    """Return the text of `data`, None if no later step can run (too large, not UTF-8), and the findings of step 0."""
    if len(data) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 1024} KiB"
        return None, [Finding("bounds.size", message, 0, path, "split it into several items")]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"the file is not UTF-8: {error.reason} at byte {error.start} (0x{data[error.start]:02x})"
        return None, [Finding("bounds.encoding", message, line, path, "save the file as UTF-8")]
    if not text.removeprefix("\ufeff").strip():
        return text, [Finding("bounds.empty", "the file is empty", 0, path, "write the item, or delete the file")]
    return text, list(_character_findings(text, path))


def check_python_encoding(text: str, path: str = "") -> list[Finding]:
    """Return a finding if Python would decode the file differently from the gate, which decodes it as UTF-8.

    By PEP 263 a comment declares the encoding: in the first line, or in the second if the first is blank or a comment.
    With a UTF-8 byte order mark, Python refuses any other declared encoding.
    """
    lines = text.removeprefix("\ufeff").split("\n", 2)[:2]
    for number, line in enumerate(lines, start=1):
        declared = _PYTHON_ENCODING.match(line)
        if declared and not _UTF8_NAME.fullmatch(declared[1]):
            message = f"the script declares the encoding {declared[1][:40]!r}; only UTF-8 is accepted"
            hint = "save it as UTF-8 and remove the comment"
            return [Finding("bounds.declared-encoding", message, number, path, hint)]
        if declared or not _PYTHON_BLANK.match(line):
            break
    return []


def _character_findings(text: str, path: str) -> Iterator[Finding]:
    starts = line_starts(text)
    counts: Counter[str] = Counter()
    for position in violations(text):
        code, name, hint = kind_of(text[position])
        counts[code] += 1
        if counts[code] <= MAX_FINDINGS:
            line = bisect_right(starts, position)
            label = f"U+{ord(text[position]):04X} {unicodedata.name(text[position], '')}".rstrip()
            message = f"{name} {label} in column {position - starts[line - 1] + 1}"
            yield Finding(code, message, line, path, hint, "warning" if code == _SOFT_HYPHEN else "error")
    for code, count in counts.items():
        if count > MAX_FINDINGS:
            message = f"{count - MAX_FINDINGS} more such characters after the {MAX_FINDINGS} that are listed"
            yield Finding(code, message, 0, path, "remove them all", "warning" if code == _SOFT_HYPHEN else "error")


@lru_cache
def kind_of(char: str) -> tuple[str, str, str]:
    """Return code, name and hint of the finding for a character that is not legitimate at its position."""
    return next((code, name, hint) for pattern, code, name, hint in _KINDS if re.match(pattern, char))


def violations(text: str) -> Iterator[int]:
    """Yield the positions of invisible or reordering characters that are not legitimate there."""
    for match in _SUSPECT.finditer(text):
        if not (_LEGITIMATE.match(text, match.start()) or _is_legitimate(text, match.start())):
            yield match.start()


def _is_legitimate(text: str, position: int) -> bool:
    char, before = text[position], text[position - 1 : position]
    if char in _MARKS:  # near right-to-left letters; a repeated mark has no use
        return before != char and bool(_RTL.search(text[max(0, position - 40) : position + 41]))
    if char == _BLANK:  # not in a word; a very long run of blanks separates words visibly
        left = text[max(0, position - _MAX_BLANKS) : position].rstrip(_BLANK)
        right = text[position + 1 : position + 1 + _MAX_BLANKS].lstrip(_BLANK)
        return not (left[-1:].isalnum() and right[:1].isalnum())
    return "\ufe00" <= char <= "\ufe0d" and before != "" and unicodedata.category(before) == "Sm"


_SKILL_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MAX_LENGTHS = {"name": 128, "title": 300, "description": 2_000, "category": 200, "author": 200}
SKILL_LENGTHS = {**MAX_LENGTHS, "name": 64, "description": 1_024, "license": 500, "compatibility": 500}
"""The limits of the Agent Skills format, where it has one."""
MAX_TAGS = 50
MAX_TAG_LENGTH = 64
MAX_VERSION_LENGTH = 64
_ONE_LINE = ("name", "title", "description", "category", "author", "version", "tags")
_VERSION_LINES = {
    ItemType.DIRECTIVE: r"<directive\b",
    ItemType.SCRIPT: r"^__version__",
    ItemType.KNOWLEDGE: r"^version[ \t]*:",
    ItemType.SKILL: r"^[ \t]+version[ \t]*:",
}


def check_structure(item: Item, path: str = "") -> list[Finding]:
    """Return the findings of step 2."""
    found = FindingList(path)
    _check_name(item, found)
    category, folder = str(item.metadata.get("category", "")), item.ref.item_id.rpartition("/")[0]
    if category and category.strip("/") != folder and not item.ref.item_type.is_folder:  # a skill's is a namespace
        line = line_of(item, r"<category\b|^category[ \t]*:|^__category__")
        message = f"the category {category[:80]!r} differs from the folder {folder!r}"
        found.warn("structure.category", message, line, f"write category {folder!r}")
    if item.ref.item_type is ItemType.DIRECTIVE:
        _check_elements(item, found)
    return found.found


def line_of(item: Item, pattern: str) -> int:
    """Return the first line of the item's file in which `pattern` occurs, or 0."""
    match = re.search(pattern, item.content, re.MULTILINE)
    return item.content.count("\n", 0, match.start()) + 1 if match else 0


def _check_name(item: Item, found: FindingList) -> None:
    name, stem = str(item.metadata.get("name", "")), item.ref.item_id.rpartition("/")[2]
    is_directive = item.ref.item_type is ItemType.DIRECTIVE
    line = line_of(item, r"<directive\b" if is_directive else r"^name[ \t]*:") if name or is_directive else 0
    if not name:
        hint = f'write <directive name="{stem}" ...>' if is_directive else f"write name: {stem}"
        found.add("structure.name-missing", f"the {item.ref.item_type} has no name", line, hint)
    elif name != stem:
        kind = "folder" if item.ref.item_type.is_folder else "file"
        message = f"the name {name[:80]!r} differs from the {kind} name {stem!r}"
        found.add("structure.name", message, line, f"write name {stem!r}, or rename the {kind}")
    if item.ref.item_type is ItemType.SKILL and not _SKILL_NAME.fullmatch(stem):  # other tools refuse it
        message = f"the skill's name {stem[:80]!r} is not made of words of lower-case letters and digits joined by '-'"
        found.add("structure.name", message, line, "rename the folder")


def _check_elements(item: Item, found: FindingList) -> None:
    """Check that a directive has steps, and that its steps and its inputs have distinct names."""
    if not item.metadata.get("steps"):
        hint = 'add <process> with <step name="..."> elements'
        found.warn("structure.no-steps", "the directive has no steps", 0, hint)
    line = line_of(item, r"<inputs\b")
    named = [("step", name, line) for name, line in directive.block_steps(item.content)]
    named += [("input", element["name"], line) for element in item.metadata.get("inputs", [])]
    seen: set[tuple[str, str]] = set()
    for kind, name, where in named:
        if not name:
            found.add(f"structure.{kind}-name", f"<{kind}> has no name", where, "give it a name attribute")
        elif (kind, name) in seen:
            message, hint = f"two {kind}s have the name {name[:80]!r}", f"give each {kind} another name"
            found.add(f"structure.{kind}-duplicate", message, where, hint)
        seen.add((kind, name))


def check_metadata(item: Item, path: str = "") -> list[Finding]:
    """Return the findings of step 3."""
    found = FindingList(path)
    _check_version(item, found)
    _check_required(item, found)
    _check_lengths(item, found)
    _check_characters(item, found)
    return found.found


def _check_version(item: Item, found: FindingList) -> None:
    from semver import Version

    version, line = item.ref.version, line_of(item, _VERSION_LINES[item.ref.item_type])
    if not version:
        found.add("metadata.version-missing", "no version is declared", line, "declare version 1.0.0")
    elif len(version) > MAX_VERSION_LENGTH or not version.isascii() or not Version.is_valid(version):
        message = f"the version {version[:80]!r} is not a semantic version"
        found.add("metadata.version", message, line, "write MAJOR.MINOR.PATCH, as in 1.2.0 (semver.org)")


def _check_required(item: Item, found: FindingList) -> None:
    if not item.metadata.get("description"):
        has_title = item.ref.item_type is ItemType.KNOWLEDGE and item.metadata.get("title")
        hint = "describe in a sentence what it is for; a search is matched against the description"
        severity: Severity = "warning" if has_title else "error"
        found.add("metadata.description-missing", "there is no description", 0, hint, severity)
    for key in () if item.ref.item_type is ItemType.SKILL else ("category", "author"):
        if not item.metadata.get(key):
            found.warn(f"metadata.{key}-missing", f"there is no {key}", 0, f"add {key}")


def _check_lengths(item: Item, found: FindingList) -> None:
    limits = SKILL_LENGTHS if item.ref.item_type is ItemType.SKILL else MAX_LENGTHS
    for key, limit in limits.items():
        length = len(str(item.metadata.get(key, "")))
        if length > limit:
            message = f"the {key} has {length} characters; at most {limit} are allowed"
            found.add("metadata.length", message, line_of(item, rf"\b{key}\b"), f"shorten the {key}")
    tags = item.metadata.get("tags", [])
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_LENGTH for tag in tags):
        message = f"there are over {MAX_TAGS} tags, or one has over {MAX_TAG_LENGTH} characters"
        found.add("metadata.tags", message, line_of(item, r"\btags\b"), "use fewer and shorter tags")


def _check_characters(item: Item, found: FindingList) -> None:
    r"""Check the decoded values, because XML can write any character as ``&#x...;`` and YAML as ``\u....``."""
    values = {**item.metadata, "version": item.ref.version or ""}
    for key in (*_ONE_LINE, *sorted(values.keys() - set(_ONE_LINE))):
        texts = texts_in(values.get(key, ""))
        if any(True for text in texts for _ in violations(text if key in _ONE_LINE else " ".join(text.split()))):
            message = f"the value of {key} has a control, invisible or direction-changing character"
            found.add("metadata.character", message, line_of(item, rf"\b{key}\b"), f"type the {key} again without it")


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a value of metadata, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from texts_in(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from texts_in(inner)
