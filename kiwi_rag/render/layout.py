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
MAX_WORDS, MAX_BEGINS = 2_000, 50
"""Words of one line that are looked at, and places in it at which what is shown may begin."""
_APART = f" {_CUT} "  # between lines that are not next to each other
_CUTS = re.compile(rf"{_CUT}(?: ?{_CUT})+")
# Ideographs, kana and syllables are written without spaces, so a line may end between any two of them.
_CJK = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\U00020000-\U0003fffd"
_PIECE = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+[^\w{_CJK}]*|[^\w{_CJK}]+")
_COMMAND = re.compile(r"(?<=[:;]) (?=kiwi )")
_EMPHASIS = "#*_=`-~ :"


@lru_cache(maxsize=4096)
def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me") or "\u200b" <= character <= "\u200f":
        return int(character == "\ufe0f")  # it makes the character before it an emoji, of two columns
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") or character >= "\U0001f000" else 1


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
    return [_CUTS.sub(_CUT, "".join(joined).removeprefix(_APART))] if joined else []


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


_Word = tuple[str, str, int, frozenset[str]]
"""A word with the space in front of it, its columns, and the terms in it."""


def _window(line: str, found: frozenset[str], weights: Mapping[str, float], room: int, rows: int) -> list[str]:
    """Return the part of a line that fits into `rows` lines and has most of the terms that were found in it."""
    words = _words(line, found, room)
    matching = [n for n, word in enumerate(words) if word[3]]
    filled = [_fill(words, begin, room, rows) for begin in sorted({0, *(max(n - 2, 0) for n in matching[:MAX_BEGINS])})]
    begin, end, best = max(filled, key=lambda one: _weight(words[one[0] : one[1]], weights))
    while begin and (longer := _fill(words, begin - 1, room, rows))[1] == end == len(words):
        begin, end, best = longer  # there is room for more words in front
    return best


def _weight(words: Sequence[_Word], weights: Mapping[str, float]) -> float:
    return sum(weights[term] for term in frozenset[str]().union(*(word[3] for word in words)))


def _fill(words: Sequence[_Word], begin: int, room: int, rows: int) -> tuple[int, int, list[str]]:
    """Return `begin`, the number of the word behind the last one that fits, and the lines of the words between them.

    A mark stands where words before or behind them are left out.
    """
    filled, used = ([_CUT], 1) if begin else ([""], 0)
    for position in range(begin, len(words)):
        gap, word, width, _ = words[position]
        gap = gap if used else ""
        is_last = len(filled) == rows and position + 1 < len(words)
        if used + len(gap) + width + 2 * is_last <= room:
            filled[-1], used = filled[-1] + gap + word, used + len(gap) + width
        elif len(filled) < rows and used:
            filled, used = [*filled, word], width
        else:
            return begin, position, [*filled[:-1], f"{filled[-1]} {_CUT}".strip()]
    return begin, len(words), filled


def _words(line: str, found: frozenset[str], room: int) -> list[_Word]:
    """Return the words of a line, the first `MAX_WORDS`.

    One that is wider than `room` is broken at punctuation and between ideographs. A piece that still is too wide, such
    as a digest, is left out, with a mark in its place.
    """
    words = list[_Word]()
    for word in line.split(" ", MAX_WORDS)[:MAX_WORDS]:
        pieces = [word] if columns(word) <= room - 2 else _PIECE.findall(word)
        for position, piece in enumerate(pieces):
            shown = piece if columns(piece) <= room - 2 else _CUT
            terms = frozenset(term for term, _, _ in find_matches(piece, found))
            words.append(("" if position else " ", shown, columns(shown), terms))
    return words
