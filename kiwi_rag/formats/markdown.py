r"""Markdown, as far as items need it: fences, comments, headings, and sections with true line ranges.

Follows CommonMark 0.31.2 for what may hide text from a reader: §4.5 fenced code blocks, §4.6 HTML blocks of
kind 2 (comments), §4.2 ATX headings. Lines are split at ``\n`` alone, counted from 1; ranges are inclusive.
Every scan here is linear in the length of the file.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kiwi_rag.model import Section

# Other tools sign in a comment on the first lines, often one that never closes; some put it behind a "#".
SIGNATURE_LINE = re.compile(
    r" {0,3}(?:(?:#{1,6}[ \t]+)?<!--[ \t]*[\w.-]{1,40}:(?:un)?signed\b|#{1,6}[ \t]+[\w.-]{1,40}:signed:\d)"
)
SIGNATURE_LINES_AT_MOST = 8

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\n]*)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_COMMENT_START = re.compile(r" {0,3}<!--")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block or a comment that starts a line; the lines include both fences.

    ``info`` is the fence's language word in lower case; ``closed`` whether its end was found.
    """

    kind: Literal["fence", "comment"]
    start_line: int
    end_line: int
    info: str = ""
    closed: bool = True


@dataclass(frozen=True, slots=True)
class Heading:
    """An ATX heading outside of code."""

    line: int
    level: int
    text: str


def split_lines(content: str) -> list[str]:
    r"""Return the lines of `content` without ``\n``; a byte-order mark before the first is not part of it."""
    return content.removeprefix("\ufeff").split("\n")


def signature_lines(lines: Sequence[str]) -> int:
    """Return how many leading lines are other tools' signature comments or blank lines between them."""
    count = 0
    for number, line in enumerate(lines[:SIGNATURE_LINES_AT_MOST], start=1):
        if SIGNATURE_LINE.match(line):
            count = number
        elif line.strip():
            break
    return count


def blocks(lines: Sequence[str]) -> list[Block]:
    """Return fenced code blocks and line-starting comments in order, as a Markdown renderer would see them."""
    found: list[Block] = []
    number = signature_lines(lines) + 1
    while number <= len(lines):
        block = _block_at(lines, number)
        if block:
            found.append(block)
        number = block.end_line + 1 if block else number + 1
    return found


def headings(lines: Sequence[str]) -> list[Heading]:
    """Return the headings that stand outside of fences and comments and below signature lines, in order."""
    hidden = block_lines(blocks(lines))
    numbers = (n for n in range(signature_lines(lines) + 1, len(lines) + 1) if n not in hidden)
    return [heading for n in numbers if (heading := heading_at(lines[n - 1], n))]


def heading_at(line: str, number: int) -> Heading | None:
    """Return the heading that `line` is, if it is one."""
    match = _HEADING.match(line.rstrip())
    if not match:
        return None
    text = (match[2] or "").strip()
    return Heading(number, len(match[1]), text.rstrip("#").rstrip() if text.endswith("#") else text)


def block_lines(known: Sequence[Block]) -> set[int]:
    """Return the numbers of all lines inside the blocks."""
    return {n for block in known for n in range(block.start_line, block.end_line + 1)}


def body_section(lines: Sequence[str], start: int, end: int, heading: tuple[str, ...]) -> Section | None:
    """Return lines `start` to `end` as a section, blank lines at both ends left out; ``None`` if all are blank."""
    while start <= end and not lines[start - 1].strip():
        start += 1
    while end >= start and not lines[end - 1].strip():
        end -= 1
    if start > end:
        return None
    return Section("body", "\n".join(lines[start - 1 : end]), start, end, heading)


def sections(lines: Sequence[str], start: int, end: int, known: Sequence[Heading]) -> list[Section]:
    """Return the prose of lines `start` to `end`, one section a heading, each under its path of `known` headings."""
    found: list[Section | None] = []
    path: list[Heading] = []
    begin = start
    first, last = bisect_left(known, start, key=_line_of), bisect_right(known, end, key=_line_of)
    for heading in known[first:last]:
        found.append(body_section(lines, begin, heading.line - 1, heading_path(path)))
        path = [*(h for h in path if h.level < heading.level), heading]
        begin = heading.line
    found.append(body_section(lines, begin, end, heading_path(path)))
    return [section for section in found if section]


def heading_path(path: Sequence[Heading]) -> tuple[str, ...]:
    """Return the texts of nested headings, empty ones left out."""
    return tuple(heading.text for heading in path if heading.text)


def first_paragraph(lines: Sequence[str], start: int) -> str:
    """Return the first paragraph of prose at or after line `start`: no heading, list, table, quote or block."""
    hidden = block_lines(blocks(lines))
    words: list[str] = []
    for number in range(start, len(lines) + 1):
        line = lines[number - 1].strip()
        prose = bool(line) and number not in hidden and not line.startswith(("#", "|", "<", "- ", "* ", ">", "---"))
        if words and not prose:
            break
        if prose:
            words.append(line)
    return " ".join(words)


def _line_of(heading: Heading) -> int:
    return heading.line


def _block_at(lines: Sequence[str], number: int) -> Block | None:
    line = lines[number - 1]
    fence = _FENCE.match(line)
    if fence and not (fence[1][0] == "`" and "`" in fence[2]):
        return _fence_from(lines, number, fence[1], fence[2])
    if _COMMENT_START.match(line):
        return _comment_from(lines, number)
    return None


def _fence_from(lines: Sequence[str], number: int, marker: str, info: str) -> Block:
    word = info.split(maxsplit=1)[0].lower() if info.strip() else ""
    for end in range(number + 1, len(lines) + 1):
        if _closes(lines[end - 1], marker):
            return Block("fence", number, end, word)
    return Block("fence", number, len(lines), word, closed=False)


def _closes(line: str, marker: str) -> bool:
    text = line.strip()
    indent = len(line) - len(line.lstrip(" "))
    return indent <= 3 and len(text) >= len(marker) and not text.strip(marker[0])


def _comment_from(lines: Sequence[str], number: int) -> Block:
    for end in range(number, len(lines) + 1):
        text = lines[end - 1]
        if "-->" in (text[text.find("<!--") + 4 :] if end == number else text):
            return Block("comment", number, end)
    return Block("comment", number, len(lines), closed=False)
