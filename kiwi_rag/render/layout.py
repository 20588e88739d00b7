"""The layout of text for a terminal: how many columns it takes, lines that fit, and the lines of a passage that match.

Words are never cut. A word that is wider than the terminal, such as a path, has a line to itself: the terminal wraps
it, and it can be copied whole.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from kiwi_rag.lexical import find_matches
from kiwi_rag.render import Style, plain, safe

INDENT = "    "
SNIPPET_COLUMNS = 160
"""What a snippet takes in all: several lines of a narrow terminal, one of a wide one."""
_CUT = "…"
_APART = f" {_CUT} "  # between lines that are not next to each other
# Ideographs, kana and syllables are written without spaces, so a line may end between any two of them.
_CJK = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\U00020000-\U0003fffd"
_PIECE = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+[^\w{_CJK}]*|[^\w{_CJK}]+")
_COMMAND = re.compile(r"(?<=[:;]) (?=kiwi )")
_EMPHASIS = "#*_=`-~ :"


@lru_cache(maxsize=4096)
def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me") or "\u200b" <= character <= "\u200f":
        return int(character == "\ufe0f")  # it makes the character before it an emoji, of two columns
    is_wide = unicodedata.east_asian_width(character) in ("W", "F") or character >= "\U0001f000"
    return 2 if is_wide else 1


def columns(text: str) -> int:
    """Return how many columns of a terminal a line of text takes, rather one too many than one too few."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def one_line(text: str) -> str:
    """Return `text` on one line, safe for a terminal."""
    return safe(" ".join(text.split()))


def fold(
    fields: Iterable[tuple[str, str]], width: int, style: Style = plain, first: str = INDENT, indent: str = INDENT
) -> list[str]:
    """Return fields, each a text and its role, as lines of up to `width` columns; 0 stands for one line.

    Two spaces separate fields. One that does not fit on a line of its own is broken between its words. Lines begin with
    `indent`, the first one with `first`.
    """
    lines, line, used, begun = list[str](), first, columns(first), False
    for text, role in fields:
        whole = not width or columns(indent + text) <= width
        for position, word in enumerate([text] if whole else text.split(" ")):
            gap = "" if not begun else " " if position else "  "
            if width and used + columns(gap + word) > width:
                lines += [line.rstrip()] if line.strip() else []
                line = indent if columns(indent + word) <= width else ""
                gap, used = "", len(line)
            line, used, begun = line + gap + style(word, role), used + columns(gap + word), True
    return [*lines, line.rstrip()] if line.strip() else lines


def fold_notice(line: str, width: int, style: Style = plain, role: str = "") -> list[str]:
    """Return a notice as lines of up to `width` columns; a command at its end is not broken, so that it can be copied.

    A line that begins with spaces keeps them, as do the lines that continue it.
    """
    indent = line[: len(line) - len(line.lstrip())]
    text, *command = _COMMAND.split(line.strip(), maxsplit=1)
    if not command or not width or columns(line) <= width:
        return fold([(line.strip(), role)], width, style, indent, indent)
    return [*fold([(text, role)], width, style, indent, indent), *(indent + style(part, role) for part in command)]


def excerpt(
    text: str, weights: Mapping[str, float], width: int, style: Style = plain, left_out: Sequence[str] = ()
) -> list[str]:
    """Return the lines of a passage that contain terms of the query, with these marked; else its first lines.

    Parameters
    ----------
    text
        The passage.
    weights
        Term of the query → how much a line with it counts.
    width
        Columns of a line, together `SNIPPET_COLUMNS` or one line; 0 for all on one line.
    left_out
        Lines that are shown already, as title or headings.
    """
    room = max(width - len(INDENT), 1) if width else SNIPPET_COLUMNS
    rows = math.ceil(SNIPPET_COLUMNS / room)
    shown: dict[int, list[str]] = {}
    for number, line, found in _best_lines(text, weights, left_out):
        if rows <= 0 or room <= 0:
            break
        shown[number] = _window(line, found, weights, room, rows)
        if width:
            rows -= len(shown[number])
        else:
            room -= columns(shown[number][0]) + len(_APART)
    marked = {number: [mark(row, weights, style) for row in shown[number]] for number in sorted(shown)}
    if width:
        return [row for rows_of_line in marked.values() for row in rows_of_line]
    joined = [(" " if number - 1 in shown else _APART) + row for number, (row,) in marked.items()]
    return ["".join(joined).removeprefix(_APART)] if joined else []


def mark(text: str, terms: Iterable[str], style: Style) -> str:
    """Return `text` with the words and parts of identifiers that are `terms` in the role ``match``."""
    end, parts = 0, []
    for _, begin, stop in find_matches(text, frozenset(terms)):
        parts += [text[end:begin], style(text[begin:stop], "match")]
        end = stop
    return "".join([*parts, text[end:]])


def _best_lines(
    text: str, weights: Mapping[str, float], left_out: Sequence[str]
) -> list[tuple[int, str, frozenset[str]]]:
    """Return lines with their number and terms, the best first: matching ones and those that follow them, else all."""
    known = {line.strip(_EMPHASIS) for line in left_out}
    lines = [one_line(line) for line in text.splitlines()]
    lines = [line for line in lines if line.strip(_EMPHASIS) not in known | {""}] or [line for line in lines if line]
    found = [frozenset(term for term, _, _ in find_matches(line, frozenset(weights))) for line in lines]
    order = sorted(range(len(lines)), key=lambda n: -sum(weights[term] for term in found[n]))
    matching = [n for n in order if found[n]]
    following = [n + 1 for n in matching if n + 1 < len(lines) and not found[n + 1]]
    return [(n, lines[n], found[n]) for n in ([*matching, *following] or order)]


def _window(line: str, found: frozenset[str], weights: Mapping[str, float], room: int, rows: int) -> list[str]:
    """Return the part of a line that fits into `rows` lines and has most of the terms that were found in it."""
    words = _words(line, room)
    matching = [n for n, (_, word) in enumerate(words) if any(find_matches(word, found))]
    begin, best = max(
        ((begin, _fill(words, begin, room, rows)) for begin in sorted({0, *(max(n - 2, 0) for n in matching)})),
        key=lambda one: sum(weights[term] for term in {t for row in one[1] for t, _, _ in find_matches(row, found)}),
    )
    while begin and not (longer := _fill(words, begin - 1, room, rows))[-1].endswith(_CUT):
        begin, best = begin - 1, longer  # there is room for more words in front
    return best


def _fill(words: Sequence[tuple[str, str]], begin: int, room: int, rows: int) -> list[str]:
    """Return lines of the words from number `begin` on, with a mark where words before or behind them are left out."""
    filled = [_CUT] if begin else [""]
    for position in range(begin, len(words)):
        gap, word = words[position]
        joined = filled[-1] + (gap if filled[-1] else "") + word
        is_last = len(filled) == rows and position + 1 < len(words)
        if columns(joined) + 2 * is_last <= room:
            filled[-1] = joined
        elif len(filled) < rows and filled[-1]:
            filled.append(word)
        else:
            filled[-1] = f"{filled[-1]} {_CUT}".strip()
            break
    return filled


def _words(line: str, room: int) -> list[tuple[str, str]]:
    """Return the words of a line with the space in front of each.

    One that is wider than `room` is broken at punctuation and between ideographs. A piece that still is too wide, such
    as a digest, is left out, with a mark in its place.
    """
    words = list[tuple[str, str]]()
    for word in line.split(" "):
        pieces = [word] if columns(word) <= room - 2 else _PIECE.findall(word)
        shown = [piece if columns(piece) <= room - 2 else _CUT for piece in pieces]
        words += [(" " if position == 0 else "", piece) for position, piece in enumerate(shown)]
    return words
