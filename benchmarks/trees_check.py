"""One file of a real tree, read, parsed and split as an index run does it, its passages checked against the file."""

from __future__ import annotations

import codecs
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kiwi_rag.chunking import split_document
from kiwi_rag.model import Passage
from kiwi_rag.validation.admission import policy_of
from kiwi_rag.validation.document_gate import DocumentFile, inspect_document

MAX_FAULTS = 3
MALFORMED = "document.malformed"
LONGEST = 1_500
"""Characters that a passage has at most, and so how far back the next one may begin."""


@dataclass(frozen=True)
class Checked:
    """What a file gave.

    ``seconds`` are those of inspecting and splitting, without reading and checking. ``faults`` say where a passage is
    not what stands in its lines, or which line is in no passage. ``unseen`` counts the letters and digits of lines cut
    within that are in no passage, ``letters`` all that those lines have. ``kept`` is False of a file that the gate
    keeps nothing of (too large, empty, no text).
    """

    path: str
    size: int
    kept: bool
    file_type: str = ""
    passages: int = 0
    seconds: float = 0.0
    warnings: Counter[str] = field(default_factory=Counter)
    faults: tuple[str, ...] = ()
    unseen: int = 0
    letters: int = 0


def check(root: Path, path: str) -> Checked:
    """Parse and split the file at `path` below `root`; an exception is told with the path."""
    data = (root / path).read_bytes()
    began = time.process_time()
    try:
        document, findings = inspect_document(DocumentFile(path, data), policy_of("documents"))
        passages = split_document(document) if document else ()
    except BaseException as error:
        error.add_note(f"in {path}")
        raise
    seconds = time.process_time() - began
    codes = Counter(finding.code for finding in findings)
    if document is None:
        return Checked(path, len(data), False, seconds=seconds, warnings=codes)
    own = reread(root / path)
    # What the gate takes out it names in a finding; without one, the text must be the file's own.
    lines = (own if set(codes) <= {MALFORMED} else document.content).split("\n")
    within, unseen, letters = within_lines(passages, lines)
    moved = [] if own.count("\n") == document.content.count("\n") else ["the gate changed the number of lines"]
    faults = [*moved, *untrue(passages, lines), *within, *uncovered(passages, lines)]
    file_type = str(document.metadata["file_type"])
    shown = tuple(f"{path}: {fault}" for fault in faults[:MAX_FAULTS])
    return Checked(path, len(data), True, file_type, len(passages), seconds, codes, shown, unseen, letters)


def reread(path: Path) -> str:
    """Return a file's text, read again and apart from Kiwi: line feeds alone, no byte-order mark."""
    data = path.read_bytes()
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return data.decode(encoding, "replace").replace("\r\n", "\n")


def untrue(passages: Sequence[Passage], lines: Sequence[str]) -> list[str]:
    """Name the passages whose text is not that of their lines; those within one line are `within_lines`' matter."""
    return [
        f"lines {passage.start_line}–{passage.end_line} are not the text of passage {passage.ordinal}"
        for passage in passages
        if not passage.text.strip()
        or (
            passage.start_line != passage.end_line
            and passage.text != "\n".join(lines[passage.start_line - 1 : passage.end_line])
        )
    ]


def uncovered(passages: Sequence[Passage], lines: Sequence[str]) -> list[str]:
    """Name the lines that are not blank and in no passage."""
    covered: set[int] = set()
    for passage in passages:
        covered.update(range(passage.start_line, passage.end_line + 1))
    return [
        f"line {number} is in no passage"
        for number, line in enumerate(lines, 1)
        if line.strip() and number not in covered
    ]


def within_lines(passages: Sequence[Passage], lines: Sequence[str]) -> tuple[list[str], int, int]:
    """Check the passages that stand in one line, of which they may be a part.

    Returns the passages that are no part of their line, and of the lines that were cut within the letters and digits
    that are in no passage, and all of them. One pass over a line, for it may have megabytes and thousands of passages.
    """
    pieces: dict[int, list[Passage]] = {}
    for passage in passages:
        if passage.start_line == passage.end_line and passage.text != lines[passage.start_line - 1]:
            pieces.setdefault(passage.start_line, []).append(passage)
    faults: list[str] = []
    unseen = letters = 0
    for number, parts in pieces.items():
        line = lines[number - 1]
        letters += _letters(line)
        done = 0
        for part in parts:
            place = _place(line, part.text, done)
            if place < 0:
                faults.append(f"line {number} does not hold the text of passage {part.ordinal}")
                continue
            unseen += _letters(line[done:place]) if place > done else 0
            done = max(done, place + len(part.text))
        unseen += _letters(line[done:])
    return faults, unseen, letters


def _place(line: str, text: str, done: int) -> int:
    """Return where a part stands that goes on after `done`; -1 if nowhere from a passage's length before.

    Of several places where a repetitive line holds it, the last one that leaves no gap is meant.
    """
    ahead = line[done : done + LONGEST]
    spaces = len(ahead) - len(ahead.lstrip())
    place = line.rfind(text, max(done - LONGEST, 0), done + spaces + len(text))
    return place if place >= 0 else line.find(text, done)


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))
