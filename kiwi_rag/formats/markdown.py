r"""Markdown, read by markdown-it-py: fences, HTML blocks, headings, and sections with true line ranges.

Items, documents and the check for hidden text all read Markdown here. The blocks are those of CommonMark 0.31.2, found
by the library's rules one block after the other, so that no paragraph is kept in memory. An outline has
nothing that is in quotes and lists: a heading in them belongs to the section around them. `pieces` has it.
Lines are split at ``\n`` alone, counted from 1; ranges are inclusive. Every scan here is linear in the length of the
file.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from kiwi_rag.formats.outcome import section
from kiwi_rag.model import Section

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_Kept = TypeVar("_Kept")
_Read = tuple[int, int, "list[Token]"]
# Other tools sign in a comment on the first lines, often one that never closes; some put it behind a "#".
SIGNATURE_LINE = re.compile(
    r" {0,3}(?:(?:#{1,6}[ \t]+)?<!--[ \t]*[\w.-]{1,40}:(?:un)?signed\b|#{1,6}[ \t]+[\w.-]{1,40}:signed:\d)"
)
MAX_SIGNATURE_LINES = 8

MAX_LINES = 50_000
"""Lines of a document that is read as Markdown. The time to read one grows with its lines, not with its characters."""

_WINDOW = 4_096
"""Lines that are read at once: markdown-it-py keeps five numbers a line."""
_LINE = attrgetter("line")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block or a block of raw HTML; the lines include both fences.

    ``info`` is the fence's language word in lower case; ``closed`` whether its end was found.
    """

    kind: Literal["fence", "html"]
    start_line: int
    end_line: int
    info: str = ""
    closed: bool = True


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading outside of code, marked with number signs or underlined; ``line`` is its first."""

    line: int
    level: int
    text: str


class Piece(NamedTuple):
    """A block in any depth: lines from 0, ``end_line`` excluded; its text without what quotes and lists put before it.

    ``kind`` is ``inline`` (a text), ``cell``, ``html_block``, ``fence``, ``code_block``, ``definition`` (of a link,
    whose ``info`` is its label), or the name of an element that has blocks in it.
    """

    kind: str
    start_line: int
    end_line: int
    text: str
    info: str


@dataclass(frozen=True, slots=True)
class Outline:
    """The blocks and the headings of a text, in order."""

    blocks: tuple[Block, ...]
    headings: tuple[Heading, ...]


def split_lines(content: str) -> list[str]:
    r"""Return the lines of `content` without ``\n``; a byte-order mark before the first is not part of it."""
    return content.removeprefix("\ufeff").split("\n")


def line_offset(content: str, line: int) -> int:
    """Return where a line of `content` begins, as `split_lines` counts them."""
    mark = content.startswith("\ufeff")
    return mark + sum(len(each) + 1 for each in split_lines(content)[: line - 1])


def is_large(content: str) -> bool:
    """Return whether a document has too many lines to be read as Markdown."""
    return content.count("\n") >= MAX_LINES


def signature_lines(lines: Sequence[str]) -> int:
    """Return how many leading lines are other tools' signature comments or blank lines between them."""
    count = 0
    for number, line in enumerate(lines[:MAX_SIGNATURE_LINES], start=1):
        if SIGNATURE_LINE.match(line):
            count = number
        elif line.strip():
            break
    return count


# The last two are cached, because the parser of a format and the gate read the same text one after the other.
@lru_cache(maxsize=2)
def outline(content: str, skipped: int | None = None) -> Outline:
    """Return blocks and headings below the first `skipped` lines: front matter, or else other tools' signatures."""
    lines = split_lines(content)
    found = list(_found(lines, signature_lines(lines) if skipped is None else skipped, _kept))
    blocks = tuple(each for each in found if isinstance(each, Block))
    return Outline(blocks, tuple(each for each in found if isinstance(each, Heading)))


def pieces(content: str) -> Iterator[Piece]:
    """Yield all blocks below other tools' signatures, those in quotes, lists and tables too."""
    lines = split_lines(content)
    return _found(lines, signature_lines(lines), _pieces)


def _found(
    lines: Sequence[str],
    begin: int,
    keep: Callable[[Sequence[Token], Sequence[str], int], Iterator[_Kept]],
) -> Iterator[_Kept]:
    """Yield what is kept of the blocks, a window of lines at a time.

    A block that reaches the window's end is read again, in a window that begins with it; if it did so already, in one
    of twice the size: so each line is read a few times at most, however long a block is.
    """
    size = _WINDOW
    while begin < len(lines):
        window = lines[begin : begin + size]
        read = 0
        for start, end, tokens in _blocks(window):
            # What follows blank lines may belong to a list before them.
            if begin + len(window) < len(lines) and not any(line.strip() for line in window[end:]):
                read = start
                size = _WINDOW if start else 2 * size
                break
            yield from keep(tokens, lines, begin)
        else:
            read, size = len(window), _WINDOW
        begin += read


def _blocks(window: Sequence[str]) -> Iterator[_Read]:
    """Yield where each block starts and ends, in lines from 0, with its tokens; link definitions are tokens, too."""
    from markdown_it.rules_block import StateBlock

    parser = _parser()
    rules = parser.block.ruler.getRules("")
    # Only line feeds end lines; the library takes a carriage return for one.
    state = StateBlock("\n".join([*window, ""]).replace("\r", " "), parser, {}, [])
    start = state.skipEmptyLines(0)
    while start < state.lineMax:
        state.line, state.tokens, state.env = start, [], {}
        next(rule for rule in rules if rule(state, start, state.lineMax, False))
        yield start, state.line, [*state.tokens, *_definitions(state.env)]
        start = state.skipEmptyLines(state.line)


def _definitions(env: Mapping[str, Any]) -> Iterator[Token]:
    from markdown_it.token import Token

    known = ({"label": label, **found} for label, found in env.get("references", {}).items())
    for each in (*known, *env.get("duplicate_refs", ())):
        words = f'{each["label"]} {each["href"]} "{each["title"]}"'
        yield Token("definition", "", 0, map=each["map"], content=words, info=each["label"])


def _pieces(tokens: Sequence[Token], _: Sequence[str], begin: int) -> Iterator[Piece]:
    for before, token in zip((None, *tokens), tokens, strict=False):
        if token.map:
            is_cell = before is not None and before.type in {"td_open", "th_open"}
            kind = "cell" if is_cell else token.tag if token.type.endswith("_open") else token.type
            yield Piece(kind, begin + token.map[0], begin + token.map[1], token.content, token.info)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table")


def _kept(tokens: Sequence[Token], lines: Sequence[str], begin: int) -> Iterator[Block | Heading]:
    """Yield what a block is, if it is of the kinds that are kept; `begin` lines precede its window."""
    first = tokens[0] if tokens else None
    if first is None or first.map is None:
        return
    start, end = begin + first.map[0] + 1, begin + first.map[1]
    if first.type == "fence":
        word = first.info.split(maxsplit=1)[0].lower() if first.info.strip() else ""
        yield Block("fence", start, end, word, end > start and _closes(lines[end - 1], first.markup))
    elif first.type == "html_block":
        yield Block("html", start, end)
    elif first.type == "heading_open":
        yield Heading(start, int(first.tag[1:]), tokens[1].content)


def _closes(line: str, marker: str) -> bool:
    text = line.strip()
    indent = len(line) - len(line.lstrip(" "))
    return indent <= 3 and len(text) >= len(marker) and not text.strip(marker[0])


def sections(
    lines: Sequence[str], start: int, end: int, headings: Sequence[Heading], kind: str = "body"
) -> list[Section]:
    """Return the prose of lines `start` to `end`, one section a heading, each under its path of `headings`."""
    found: list[Section | None] = []
    path: list[Heading] = []
    begin = start
    for heading in headings[bisect_left(headings, start, key=_LINE) : bisect_right(headings, end, key=_LINE)]:
        found.append(section(lines, begin, heading.line - 1, _texts(path), kind))
        path = [*(h for h in path if h.level < heading.level), heading]
        begin = heading.line
    found.append(section(lines, begin, end, _texts(path), kind))
    return [each for each in found if each]


def _texts(path: Sequence[Heading]) -> tuple[str, ...]:
    return tuple(heading.text for heading in path if heading.text)


def first_paragraph(lines: Sequence[str], start: int, blocks: Iterable[Block]) -> str:
    """Return the first paragraph of prose at or after line `start`: no heading, list, table, quote or `blocks`."""
    excluded = {n for block in blocks for n in range(block.start_line, block.end_line + 1)}
    words: list[str] = []
    for number in range(start, len(lines) + 1):
        line = lines[number - 1].strip()
        prose = bool(line) and number not in excluded and not line.startswith(("#", "|", "<", "- ", "* ", ">", "---"))
        if words and not prose:
            break
        if prose:
            words.append(line)
    return " ".join(" ".join(words).split())
