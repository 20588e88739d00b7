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
from typing import Any

from kiwi_rag.formats import directive
from kiwi_rag.formats.lines import line_starts
from kiwi_rag.formats.source import MAX_BYTES
from kiwi_rag.model import Finding, Item, Severity
from kiwi_rag.model.refs import ItemType

MAX_FINDINGS = 20

_ZWNJ, _ZWJ = "\u200c", "\u200d"
_BIDI = "\u202a-\u202e\u2066-\u2069"
_MARKS = "\u200e\u200f\u061c"
_TAGS = "\U000e0000-\U000e007f"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
# Format controls of Duployan shorthand and of Egyptian hieroglyphs, and the braille pattern without dots.
_SCRIPT_CONTROLS = "\U0001bca0-\U0001bca3\U00013430-\U0001345f"
_BLANK = "\u2800"
_INVISIBLE = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0080-\U000e00ff\U000e01f0-\U000e0fff"
)
# Lone carriage returns too: Markdown ends a line there, most other readers do not.
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_SUSPECT = re.compile(
    f"[{_CONTROL}{_BIDI}{_MARKS}{_TAGS}{_SELECTORS}{_INVISIBLE}{_SCRIPT_CONTROLS}{_BLANK}{_ZWNJ}{_ZWJ}]|\r(?!\n)"
)
# Pattern, code of the finding, name of the character, hint. The first pattern that matches counts.
_KINDS = (
    (re.compile(f"[{_CONTROL}\r]"), "bounds.control", "control character", "remove it"),
    (
        re.compile(f"[{_BIDI}]"),
        "bounds.bidi",
        "direction-changing character",
        "remove it; text in one direction needs none",
    ),
    (re.compile(f"[{_TAGS}]"), "bounds.tag", "invisible tag character", "remove it"),
    (
        re.compile(f"[{_SELECTORS}]"),
        "bounds.selector",
        "variation selector without a character that takes it",
        "remove it",
    ),
    (
        re.compile("\u00ad"),
        "bounds.soft-hyphen",
        "soft hyphen",
        "remove it: a search does not find a word that contains one",
    ),
)
_OTHER = ("bounds.invisible", "invisible character", "remove it")
_WARNED = frozenset({"bounds.soft-hyphen"})
# A declared encoding as PEP 263 defines it, and the names that Python reads as UTF-8.
_PYTHON_ENCODING = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII)
_PYTHON_BLANK = re.compile(r"[ \t\f]*(?:#|\r?$)")
_UTF8_NAME = re.compile(r"utf[-_]?8(?:[-_]sig)?", re.IGNORECASE)
# Blocks of scripts that are written from right to left.
_RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
# Scripts whose spelling uses joiners: Arabic to Samaritan, Indic to Tibetan, Myanmar, Khmer, Mongolian, and extensions.
_JOINING_SCRIPT = re.compile(
    "[\u0600-\u08ff\u0900-\u0fff\u1000-\u109f\u1780-\u18af\u1900-\u1aaf\u1b00-\u1c4f\ua800-\uaaff\uabc0-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00010aff\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
_CONTROLLED_SCRIPT = re.compile("[\U0001bc00-\U0001bca3\U00013000-\U0001345f]")
_MAX_BLANKS = 16
_EMOJI = re.compile("[\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff]")
_MODIFIER = re.compile("[\ufe0f\U0001f3fb-\U0001f3ff]")
_KEYCAP_OR_SIGN = re.compile("[0-9#*\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff]")
_IDEOGRAPH = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3021-\u303c\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]"
)
_SELECTED_SCRIPT = re.compile(
    "[\u0030\u1000-\u109f\u1820-\u18aa\ua840-\ua877\uaa60-\uaa7f\uff01-\uffee\U00010a00-\U00010aff]"
)


def check_bounds(data: bytes, path: str = "") -> tuple[str | None, list[Finding]]:
    """Return the text of `data` and the findings of step 0.

    The text is None if no later step can run: the file is larger than 256 KiB, or is not UTF-8.
    """
    if len(data) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 1024} KiB"
        return None, [Finding("bounds.size", message, 0, path, "split it into several items")]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return None, [_not_utf8(data, error, path)]
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
            return [
                Finding("bounds.declared-encoding", message, number, path, "save it as UTF-8 and remove the comment")
            ]
        if declared or not _PYTHON_BLANK.match(line):
            break
    return []


def is_clean(text: str) -> bool:
    """Return whether a text (a name, a tag) has no control, invisible or direction-changing character."""
    return not any(True for _ in violations(text))


def _not_utf8(data: bytes, error: UnicodeDecodeError, path: str) -> Finding:
    line = data.count(b"\n", 0, error.start) + 1
    message = f"the file is not UTF-8: {error.reason} at byte {error.start} (0x{data[error.start]:02x})"
    return Finding("bounds.encoding", message, line, path, "save the file as UTF-8")


def _character_findings(text: str, path: str) -> Iterator[Finding]:
    starts = line_starts(text)
    counts: Counter[str] = Counter()
    for position in violations(text):
        code, name, hint = _kind(text[position])
        counts[code] += 1
        if counts[code] <= MAX_FINDINGS:
            line = bisect_right(starts, position)
            message = f"{name} {_label(text[position])} in column {position - starts[line - 1] + 1}"
            yield Finding(code, message, line, path, hint, _severity(code))
    for code, count in counts.items():
        if count > MAX_FINDINGS:
            message = f"{count - MAX_FINDINGS} more such characters after the {MAX_FINDINGS} that are listed"
            yield Finding(code, message, 0, path, "remove them all", _severity(code))


def _severity(code: str) -> Severity:
    return "warning" if code in _WARNED else "error"


def code_of(char: str) -> str:
    """Return the code of the finding for a character that is not legitimate at its position."""
    return _kind(char)[0]


def _kind(char: str) -> tuple[str, str, str]:
    return next(((code, name, hint) for pattern, code, name, hint in _KINDS if pattern.match(char)), _OTHER)


def _label(char: str) -> str:
    return f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()


def violations(text: str) -> Iterator[int]:
    """Yield the positions of invisible or reordering characters that are not legitimate there."""
    for match in _SUSPECT.finditer(text):
        if not _is_legitimate(text, match.start()):
            yield match.start()


def _is_legitimate(text: str, position: int) -> bool:
    char = text[position]
    if char == "\ufeff":
        return position == 0
    if char in _ZWNJ + _ZWJ:
        return _joins_script(text, position) or (char == _ZWJ and _joins_emoji(text, position))
    if char in _MARKS:
        return _near_rtl(text, position)
    if char == _BLANK or "\u180b" <= char <= "\u180f" or "\U00013430" <= char <= "\U0001bca3":
        return _is_in_its_script(text, position)
    return _is_selector(char) and _takes_selector(_before(text, position), char)


def _before(text: str, position: int) -> str:
    return text[position - 1] if position else ""


def _is_in_its_script(text: str, position: int) -> bool:
    """Return whether a control follows a letter of its script, or a braille blank is not between two letters."""
    char, before = text[position], _before(text, position)
    if char == _BLANK:
        return not (_letter_near(text, position, -1) and _letter_near(text, position, 1))
    return "\u1820" <= before <= "\u18aa" if char <= "\u180f" else bool(_CONTROLLED_SCRIPT.match(before))


def _letter_near(text: str, position: int, step: int) -> bool:
    """Return whether a letter or digit is next to a run of blanks; a very long run separates words visibly."""
    at = position + step
    while 0 <= at < len(text) and text[at] == _BLANK and abs(at - position) < _MAX_BLANKS:
        at += step
    return 0 <= at < len(text) and text[at].isalnum()


def _joins_script(text: str, position: int) -> bool:
    return bool(_JOINING_SCRIPT.match(_before(text, position)))


def _joins_emoji(text: str, position: int) -> bool:
    before = _before(text, position)
    if before and _MODIFIER.match(before):
        before = _before(text, position - 1)
    return bool(_EMOJI.match(before) and _EMOJI.match(text[position + 1 : position + 2]))


def _near_rtl(text: str, position: int) -> bool:
    """Return whether right-to-left letters are within 40 characters of the mark; a repeated mark has no use."""
    around = text[max(0, position - 40) : position + 41]
    return _before(text, position) != text[position] and bool(_RTL.search(around))


def _is_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _takes_selector(base: str, selector: str) -> bool:
    if "\ufe0e" <= selector <= "\ufe0f":
        return bool(_KEYCAP_OR_SIGN.match(base) or base == "\u2139")
    if selector >= "\U000e0100":
        return bool(_IDEOGRAPH.match(base))
    return bool(_IDEOGRAPH.match(base) or _SELECTED_SCRIPT.match(base) or (base and unicodedata.category(base) == "Sm"))


def check_structure(item: Item, path: str = "") -> list[Finding]:
    """Return the findings of step 2."""
    found = [*_name(item, path), *_category(item, path)]
    if item.ref.item_type is ItemType.SKILL:
        found += _skill_name(item, path)
    if item.ref.item_type is ItemType.DIRECTIVE:
        found += [*_steps(item, path), *_inputs(item, path)]
    return found


def line_of(item: Item, pattern: str) -> int:
    """Return the first line of the item's file in which `pattern` occurs, or 0."""
    match = re.search(pattern, item.content, re.MULTILINE)
    return item.content.count("\n", 0, match.start()) + 1 if match else 0


def _name(item: Item, path: str) -> Iterator[Finding]:
    name, stem = str(item.metadata.get("name", "")), item.ref.item_id.rpartition("/")[2]
    line = line_of(item, r"<directive\b|^name[ \t]*:")
    if not name:
        is_directive = item.ref.item_type is ItemType.DIRECTIVE
        hint = f'write <directive name="{stem}" ...>' if is_directive else f"write name: {stem}"
        yield Finding("structure.name-missing", f"the {item.ref.item_type} has no name", line, path, hint)
    elif name != stem:
        kind = "folder" if item.ref.item_type.is_folder else "file"
        message = f"the name {name[:80]!r} differs from the {kind} name {stem!r}"
        yield Finding("structure.name", message, line, path, f"write name {stem!r}, or rename the {kind}")


def _skill_name(item: Item, path: str) -> Iterator[Finding]:
    """Yield a finding for a name that other tools for Agent Skills refuse."""
    name = item.ref.item_id.rpartition("/")[2]
    if not _SKILL_NAME.fullmatch(name):
        message = f"the skill's name {name[:80]!r} is not made of words of lower-case letters and digits joined by '-'"
        yield Finding("structure.name", message, line_of(item, r"^name[ \t]*:"), path, "rename the folder")


def _category(item: Item, path: str) -> Iterator[Finding]:
    category, folder = str(item.metadata.get("category", "")), item.ref.item_id.rpartition("/")[0]
    if category and category.strip("/") != folder:
        line = line_of(item, r"<category\b|^category[ \t]*:|^__category__")
        message = f"the category {category[:80]!r} differs from the folder {folder!r}"
        yield Finding("structure.category", message, line, path, f"write category {folder!r}", "warning")


def _steps(item: Item, path: str) -> Iterator[Finding]:
    if not item.metadata.get("steps"):
        hint = 'add <process> with <step name="..."> elements'
        yield Finding("structure.no-steps", "the directive has no steps", 0, path, hint, "warning")
    seen: set[str] = set()
    for step in directive.block_steps(item.content):
        if not step.name:
            yield Finding("structure.step-name", "a <step> has no name", step.line, path, "give it a name attribute")
        elif step.name in seen:
            message = f"two steps have the name {step.name[:80]!r}"
            yield Finding("structure.step-duplicate", message, step.line, path, "give each step another name")
        seen.add(step.name)


def _inputs(item: Item, path: str) -> Iterator[Finding]:
    line = line_of(item, r"<inputs\b")
    names = [element["name"] for element in item.metadata.get("inputs", [])]
    if "" in names:
        yield Finding("structure.input-name", "an <input> has no name", line, path, "give it a name attribute")
    for name in sorted({n for n in names if n and names.count(n) > 1}):
        message = f"two inputs have the name {name[:80]!r}"
        yield Finding("structure.input-duplicate", message, line, path, "give each input another name")


_SKILL_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MAX_LENGTHS = {"name": 128, "title": 300, "description": 2_000, "category": 200, "author": 200}
SKILL_LENGTHS = {**MAX_LENGTHS, "name": 64, "description": 1_024, "license": 500, "compatibility": 500}
"""The limits of the Agent Skills format, where it has one."""
MAX_TAGS = 50
MAX_TAG_LENGTH = 64
MAX_VERSION_LENGTH = 64
_PLAIN = ("name", "title", "description", "category", "author", "version")
_CHECKED = {*_PLAIN, "tags"}
_VERSION_LINES = {
    ItemType.DIRECTIVE: r"<directive\b",
    ItemType.SCRIPT: r"^__version__",
    ItemType.KNOWLEDGE: r"^version[ \t]*:",
    ItemType.SKILL: r"^[ \t]+version[ \t]*:",
}


def check_metadata(item: Item, path: str = "") -> list[Finding]:
    """Return the findings of step 3."""
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
        has_title = item.ref.item_type is ItemType.KNOWLEDGE and item.metadata.get("title")
        hint = "describe in a sentence what it is for; a search is matched against the description"
        severity: Severity = "warning" if has_title else "error"
        yield Finding("metadata.description-missing", "there is no description", 0, path, hint, severity)
    for key in () if item.ref.item_type is ItemType.SKILL else ("category", "author"):
        if not item.metadata.get(key):
            yield Finding(f"metadata.{key}-missing", f"there is no {key}", 0, path, f"add {key}", "warning")


def _lengths(item: Item, path: str) -> Iterator[Finding]:
    limits = SKILL_LENGTHS if item.ref.item_type is ItemType.SKILL else MAX_LENGTHS
    for key, limit in limits.items():
        length = len(str(item.metadata.get(key, "")))
        if length > limit:
            message = f"the {key} has {length} characters; at most {limit} are allowed"
            yield Finding("metadata.length", message, line_of(item, rf"\b{key}\b"), path, f"shorten the {key}")


def _tags(item: Item, path: str) -> Iterator[Finding]:
    tags = item.metadata.get("tags", [])
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_LENGTH for tag in tags):
        message = f"there are over {MAX_TAGS} tags, or one has over {MAX_TAG_LENGTH} characters"
        yield Finding("metadata.tags", message, line_of(item, r"\btags\b"), path, "use fewer and shorter tags")


def _clean(item: Item, path: str) -> Iterator[Finding]:
    r"""Check the decoded values, because XML can write any character as ``&#x...;`` and YAML as ``\u....``."""
    for key in _PLAIN:
        value = str((item.ref.version or "") if key == "version" else item.metadata.get(key, ""))
        if not is_clean(value):
            message = f"the {key} has a control, invisible or direction-changing character"
            yield Finding(
                "metadata.character", message, line_of(item, rf"\b{key}\b"), path, f"type the {key} again without it"
            )
    if not all(is_clean(tag) for tag in item.metadata.get("tags", [])):
        message = "a tag has a control, invisible or direction-changing character"
        yield Finding("metadata.character", message, line_of(item, r"\btags\b"), path, "type the tags again without it")
    for key in sorted(item.metadata.keys() - _CHECKED):
        if not all(is_clean(" ".join(text.split())) for text in _texts(item.metadata[key])):
            message = f"the value of {key} has a control, invisible or direction-changing character"
            yield Finding(
                "metadata.character", message, line_of(item, rf"\b{key}\b"), path, f"type the {key} again without it"
            )


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
