"""HTML elements that a reader does not see, each from its opening tag to its closing tag.

Step 6 of the gate looks for them in Markdown, and the parser of HTML leaves them out.

Every tag is scanned once, whatever the nesting. The standard library's ``html.parser`` is not used: in Python 3.11 it
takes quadratic time (14 seconds for 40 KB of ``<a``), and a file under check may be hostile.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

# A quoted value may contain ">". A quotation mark without a partner within 1,000 characters is plain text, which keeps
# the scan linear.
_QUOTED = r"\"[^\"]{0,1000}+\"|'[^']{0,1000}+'"
_OPENING = re.compile(rf"<([A-Za-z][\w:-]*+)((?:[^<>\"']++|{_QUOTED}|[\"'])*+)")
_VALUE = re.compile(_QUOTED)
_TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*+)(?:[ \t\n]*+>)?")
_HIDDEN = re.compile(r"(?:^|[\s/\"'])hidden(?=[\s=/>]|$)|\btype\s*=\s*[\"']?hidden\b", re.IGNORECASE)
_STYLED_AWAY = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|font-size\s*:\s*0(?!\.?\d*[1-9])"
    r"|opacity\s*:\s*0(?!\.?\d*[1-9])",
    re.IGNORECASE,
)
# No other attribute styles: a component's property, or a title, may speak of "visibility: hidden".
_STYLE = re.compile(r"(?<![\w-])style\s*=", re.IGNORECASE)
_DECIMAL = re.compile(r"&#0*+([0-9]*+)")
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
NEVER_SHOWN = frozenset({"template", "style", "script"})
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)


class Element(NamedTuple):
    """The offsets of an element that is not shown; ``is_styled`` if its attributes hide it, not its name."""

    start: int
    end: int
    name: str
    is_styled: bool


def unseen(visible: str, at_most: int) -> Iterator[Element]:
    """Yield the first `at_most` elements that a reader does not see; nested ones are part of the outer one."""
    openings = list(islice(_openings(visible), at_most))
    ends = _ends(visible, openings)
    last = 0
    for opening in openings:
        if opening.start < last:
            continue
        end = opening.end if opening.name in VOID else ends.get(opening.start, 0)
        if not end and not opening.is_styled and not _opens_line(visible, opening.start):
            continue  # a word of prose that looks like a tag
        last = end or _end_of_paragraph(visible, opening.end)
        yield opening._replace(end=last)


def _openings(visible: str) -> Iterator[Element]:
    """Yield the opening tags of such elements."""
    for match in _OPENING.finditer(visible):
        name, attributes = match[1].lower(), match[2]
        is_styled = len(attributes) > 6 and is_styled_away(attributes)
        if is_styled or name in NEVER_SHOWN:
            yield Element(match.start(), min(match.end() + 1, len(visible)), name, is_styled)


def is_styled_away(attributes: str) -> bool:
    """Return whether the attributes of an element hide it."""
    without_values = _VALUE.sub('""', attributes)
    if _HIDDEN.search(without_values) or re.search(r"\btype\s*=\s*[\"']hidden\b", attributes, re.IGNORECASE):
        return True
    style = _STYLE.search(attributes)
    return style is not None and bool(_STYLED_AWAY.search(unescape(attributes[style.end() :])))


def unescape(text: str) -> str:
    """Return `text` with its character references decoded."""
    # The standard library fails on numbers of thousands of digits; no character's has more than seven.
    return html.unescape(_DECIMAL.sub(lambda number: f"&#{number[1][:8]}", text)) if "&" in text else text


def _ends(visible: str, openings: Sequence[Element]) -> dict[int, int]:
    """Return the end offset of each element by its start offset: after the closing tag that matches it.

    Nested elements of the same name are counted. If they use up all closing tags, the element ends after the last one.
    """
    ends: dict[int, int] = {}
    wanted = {opening.start for opening in openings}
    open_now: dict[str, list[int]] = {opening.name: [] for opening in openings}
    last: dict[str, int] = {}
    for match in _TAG.finditer(visible) if openings else ():
        name = match[2].lower()
        if name not in open_now:
            continue
        if not match[1]:
            open_now[name].append(match.start())
            continue
        last[name] = match.end()
        start = open_now[name].pop() if open_now[name] else -1
        if start in wanted:
            ends[start] = match.end()
    for name, starts in open_now.items():
        ends.update({start: last[name] for start in starts if start in wanted and last.get(name, 0) > start})
    return ends


def _opens_line(visible: str, start: int) -> bool:
    return not visible[visible.rfind("\n", 0, start) + 1 : start].strip(" ")


def _end_of_paragraph(visible: str, position: int) -> int:
    found = _PARAGRAPH_END.search(visible, position)
    return found.end() if found else len(visible)
