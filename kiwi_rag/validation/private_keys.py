"""Step 5: private keys, from the line that begins one to the line that ends it.

A key without an end goes as far as it looks like one. Between its lines may stand what quotes them: quotation marks,
escapes, comment signs, line breaks of HTML. Every search is linear in the length of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator

MARKERS = ("PRIVATE KEY", "PuTTY-User-Key-File")
"""What every beginning of a private key holds."""

_LONGEST = 16_384
_HEAD = 600
_BEGIN = re.compile(
    r"-{0,5}BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-{0,5}|PuTTY-User-Key-File-\d:[^\n]{1,40}\n?Encryption:"
)
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}KEY(?: BLOCK)?-----")
# Letters of both cases, or with digits: no word, and no path. RFC 7468 breaks lines at 64 characters.
_MIXED = r"(?=[A-Za-z+/]{0,64}[0-9+=]|[A-Za-z/]{0,64}[a-z][A-Z]|[A-Za-z/]{0,64}[A-Z]{2}[A-Za-z/]{0,64}[a-z])"
_STRETCH = re.compile(rf"(?<![A-Za-z0-9+/]){_MIXED}[A-Za-z0-9+/]{{16,}}|[A-Za-z0-9+/]{{40,}}")
_AT_ONCE = re.compile(r"(?:\\[nr]|[A-Za-z0-9+/\n]){16,}")
_BETWEEN = r"(?:\\[nrt]|\\u000[adAD]|<br\s*/?>|&#(?:10|13|x[aAdD]);|[\s\"'`+\\,.>#*|@;:()\[\]/-]){0,60}+"
_HEADERS = (
    r"(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash|Encryption|Key-Derivation|Argon2-[A-Za-z]+|Public-Lines"
    r"|Private-Lines|Private-MAC):[^\n\"\\<]{0,200}"
)
_BODY = re.compile(
    rf"(?:[^\n]{{0,80}}?(?=\n{_HEADERS}))?"
    rf"(?:{_BETWEEN}(?:{_HEADERS}|(?:[A-Za-z0-9+/]{{40,}}|{_MIXED}[A-Za-z0-9+/]{{12,}})={{0,2}}(?![\"']\s?:)))*+"
    rf"(?:{_BETWEEN}[A-Za-z0-9+/]{{1,70}}={{1,2}})?"
)


def spans(read: str, text: str, origin: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    """Yield where private keys stand in `text`, in order, as offsets; none overlaps another.

    Parameters
    ----------
    read
        A reading of the text, where beginnings are looked for.
    text
        The text itself, where ends are.
    origin
        Where a position of the reading stands in the text.
    """
    begins = [match.span() for match in _BEGIN.finditer(read)]
    ends = [match.span() for match in _END.finditer(text)]
    end_starts = [start for start, _ in ends]
    last = 0
    for number, (begin, stop) in enumerate(begins):
        start, body = origin(begin), origin(stop - 1) + 1
        if start < last or not _is_key(read, stop, begins[number + 1][0] if number + 1 < len(begins) else len(read)):
            continue
        following = origin(begins[number + 1][0]) if number + 1 < len(begins) else len(text)
        index = bisect_left(end_starts, body)
        closed = index < len(ends) and ends[index][0] <= min(following, body + _LONGEST)
        last = ends[index][1] if closed else _as_far_as_it_looks_like_one(text, body, following)
        yield start, last


def _is_key(read: str, position: int, following: int) -> bool:
    """Say whether a key follows its marker, and not the prose that names it."""
    head = read[position : min(position + _HEAD, following)]
    if read.startswith("Encryption:", position - 11):
        return True
    at_once = _AT_ONCE.match(head)
    long = sum(len(match[0]) for match in _STRETCH.finditer(head.partition("-----END")[0]))
    return bool(at_once and len(at_once[0].replace("\n", "")) >= 16) or long >= 40


def _as_far_as_it_looks_like_one(text: str, body: int, following: int) -> int:
    found = _BODY.match(text, body, following)
    return found.end() if found else body
