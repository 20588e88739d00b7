"""Whether a Markdown file is an architecture decision record.

Sources of the forms: Markdown Any Decision Records 2 to 4 (https://adr.github.io/madr/), and Michael Nygard's
"Documenting Architecture Decisions" (2011): Status, Context, Decision, Consequences.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import PurePosixPath

from kiwi_rag.formats.markdown import headings, split_lines

_MADR = frozenset(
    {
        "context and problem statement",
        "decision drivers",
        "considered options",
        "decision outcome",
        "pros and cons of the options",
    }
)
_NYGARD = frozenset({"status", "context", "decision", "consequences"})
_FOLDERS = frozenset({"adr", "adrs", "decisions", "decision-records", "decision-log", "architecture-decisions"})
_HEAD_LINES = 40
# In front matter, or as MADR 2 has it: "* Status: accepted", with or without emphasis.
_STATUS = re.compile(
    r"[\s*_-]*status[*_]*[ \t]*:[\s*_\"'{]*(?:proposed|accepted|rejected|deprecated|superseded|draft)\b", re.IGNORECASE
)
_PEOPLE = re.compile(r"[\s*_-]*(?:deciders|decision[-_]makers)[*_]*[ \t]*:", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)*[.)]?\s+")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*")


def is_decision_record(path: str, text: str) -> bool:
    """Say whether `text` is a decision record, by its headings and head; a folder only tips a doubtful case."""
    lines = split_lines(text)
    said = _heading_words(lines)
    madr, nygard = len(said & _MADR), len(said & _NYGARD)
    head = [line[:200] for line in lines[:_HEAD_LINES]]
    status, people = any(map(_STATUS.match, head)), any(map(_PEOPLE.match, head))
    if madr >= 2 or (nygard >= 3 and "decision" in said):
        return True
    if madr + nygard and (people or (status and said & {"decision", "decision outcome"})):
        return True
    in_folder = bool(_FOLDERS & {part.lower() for part in PurePosixPath(path).parent.parts})
    return in_folder and (madr + (nygard >= 2) + ("decision" in said) + status + people) > 0


def _heading_words(lines: list[str]) -> set[str]:
    found = [heading.text for heading in headings(lines)]
    # Headings underlined with = or -: what stands in fences here would need a fence of exactly such lines.
    found += [above for above, line in pairwise(lines) if line[:1] in "=- " and _underlined(above, line)]
    return {_NUMBER.sub("", text.strip().lower(), count=1).strip(" :*_") for text in found}


def _underlined(above: str, line: str) -> bool:
    return bool(above.strip()) and len(above) < 80 and _UNDERLINE.fullmatch(line) is not None and len(line.strip()) > 2
