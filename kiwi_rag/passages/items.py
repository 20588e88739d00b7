"""An item's sections → passages: merged where they are tiny, split with overlap where they are long.

Sizes are estimated (`kiwi_rag.passages.tokens`): a target of 210 stays within the model's 256 word pieces, context
included, for markup is left out of what the model sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from kiwi_rag.model import Item, Passage, Section
from kiwi_rag.passages.tokens import estimate_tokens

TARGET_TOKENS = 210
OVERLAP_TOKENS = 30
MAX_CONTEXT = 200
MAX_HEADING = 80
_SENTENCE = re.compile(r".*?[.!?][\"')\]]*(?:\s+|$)|.+$", re.DOTALL)
_WORD = re.compile(r"\s*\S{1,200}\s*")
_SEPARATORS = re.compile(r"[/_.\-]+")


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is never split: a line, or a sentence of a long line. ``opens`` says that it starts its line."""

    text: str
    line: int
    tokens: int
    opens: bool


def split(
    item: Item, *, target_tokens: int = TARGET_TOKENS, overlap_tokens: int = OVERLAP_TOKENS
) -> tuple[Passage, ...]:
    """Split an item into its passages, the summary first.

    Neighbouring sections under a common heading share a passage while they fit. A section over `target_tokens` is
    cut at line ends, or at sentence ends where a line alone is too long; each further passage repeats up to
    `overlap_tokens` from the end of the one before. Every non-blank line of every body section is in a passage, and
    a passage's lines are where its text stands in the file (the summary's: the metadata block).
    """
    summary = [s for s in item.sections if s.kind == "summary"]
    lines = item.content.removeprefix("\ufeff").split("\n")
    body = _merged([s for s in item.sections if s.kind == "body"], lines, target_tokens)
    texts = [*_summaries(summary, target_tokens), *_bodies(body, target_tokens, overlap_tokens)]
    return tuple(
        Passage(ordinal, s.text, _context(item, s.heading), s.heading, s.start_line, s.end_line)
        for ordinal, s in enumerate(texts)
    )


def _context(item: Item, heading: tuple[str, ...]) -> str:
    """Return the words of the id, the title where they do not say it already, and the headings."""
    title, words = item.title, _SEPARATORS.sub(" ", item.ref.item_id)
    said = _SEPARATORS.sub(" ", title).lower() in words.lower()
    path = [words, *([] if said else [title]), *(h for h in heading if h != title)]
    return " > ".join(part[:MAX_HEADING] for part in path)[:MAX_CONTEXT]


def _summaries(sections: Iterable[Section], target: int) -> Iterator[Section]:
    for section in sections:
        for units in _packed(list(_units(section, target)), target, overlap=0):
            yield Section("summary", _joined(units), section.start_line, section.end_line, section.heading)


def _bodies(sections: Iterable[Section], target: int, overlap: int) -> Iterator[Section]:
    for section in sections:
        for units in _packed(list(_units(section, target)), target, overlap):
            yield Section("body", _joined(units), units[0].line, units[-1].line, section.heading)


def _merged(sections: Iterable[Section], lines: Sequence[str], target: int) -> list[Section]:
    merged: list[Section] = []
    sizes: list[int] = []
    for section in sections:
        size = estimate_tokens(section.text)
        if merged and sizes[-1] + size <= target and _belong_together(merged[-1], section, lines):
            merged[-1] = _join_sections(merged[-1], section, lines, sizes[-1] >= size)
            sizes[-1] += size
        else:
            merged.append(section)
            sizes.append(size)
    return merged


def _belong_together(first: Section, second: Section, lines: Sequence[str]) -> bool:
    """Say whether nothing but blank lines is between two sections, and their headings share a beginning."""
    between = lines[first.end_line : second.start_line - 1]
    related = bool(_common(first.heading, second.heading)) or not first.heading or not second.heading
    return related and not any(line.strip() for line in between)


def _join_sections(first: Section, second: Section, lines: Sequence[str], first_is_larger: bool) -> Section:
    common = _common(first.heading, second.heading)
    nested = common in (first.heading, second.heading)
    heading = (first.heading if first_is_larger else second.heading) if nested else common
    text = "\n".join(lines[first.start_line - 1 : second.end_line])
    return Section("body", text, first.start_line, second.end_line, heading)


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    length = next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    return first[:length]


def _units(section: Section, target: int) -> Iterator[_Unit]:
    for line, text in enumerate(section.text.split("\n"), start=section.start_line):
        tokens = estimate_tokens(text)
        if tokens <= target // 2:
            yield _Unit(text, line, tokens, opens=True)
        else:
            yield from _split_line(text, line, target // 2)


def _split_line(text: str, line: int, limit: int) -> Iterator[_Unit]:
    opens = True
    for sentence in _SENTENCE.findall(text):
        tokens = estimate_tokens(sentence)
        parts = [(sentence, tokens)] if tokens <= limit else _word_groups(sentence, limit)
        for part, size in parts:
            yield _Unit(part, line, size, opens)
            opens = False


def _word_groups(sentence: str, limit: int) -> Iterator[tuple[str, int]]:
    words, size = "", 0
    for word in _WORD.findall(sentence):
        tokens = estimate_tokens(word)
        if words and size + tokens > limit:
            yield words, size
            words, size = "", 0
        words, size = words + word, size + tokens
    if words:
        yield words, size


def _packed(units: Sequence[_Unit], target: int, overlap: int) -> Iterator[list[_Unit]]:
    """Yield runs of units within `target`, evenly filled so that no small rest is left over, none of them blank."""
    total = sum(unit.tokens for unit in units)
    aim = total / max(1, -(-total // target))
    current: list[_Unit] = []
    size = fresh = 0
    for unit in units:
        if size + unit.tokens > target or (fresh >= aim and unit.tokens):
            if fresh:
                yield _trimmed(current)
            current = _tail(current, min(overlap, target - unit.tokens)) if fresh else []
            size, fresh = sum(u.tokens for u in current), 0
        current.append(unit)
        size, fresh = size + unit.tokens, fresh + unit.tokens
    if fresh:
        yield _trimmed(current)


def _trimmed(units: Sequence[_Unit]) -> list[_Unit]:
    """Return the units without blank ones at both ends."""
    filled = [index for index, unit in enumerate(units) if unit.text.strip()]
    return list(units[filled[0] : filled[-1] + 1])


def _tail(units: Sequence[_Unit], overlap: int) -> list[_Unit]:
    """Return the last units that fit into `overlap` tokens."""
    tail: list[_Unit] = []
    for unit in reversed(units):
        overlap -= unit.tokens
        if overlap < 0:
            break
        tail.insert(0, unit)
    return tail if any(unit.tokens for unit in tail) else []


def _joined(units: Sequence[_Unit]) -> str:
    return "\n".join("".join(unit.text for unit in line) for _, line in groupby(units, key=lambda unit: unit.line))
