"""Step 5: credentials in the formats of live services.

The text is searched unchanged, with adjacent string literals joined, with lines joined, and after one layer of base64,
hexadecimal digits, percent-encoding, entities or escapes was decoded, so that a key that was split or encoded is found.
Metadata is searched after its escapes are decoded. `secret_patterns` has the formats.
"""

from __future__ import annotations

import binascii
import html
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import accumulate, islice, pairwise, takewhile
from typing import Any, NamedTuple
from urllib.parse import unquote

from kiwi_rag.formats.outcome import line_starts
from kiwi_rag.model import Finding
from kiwi_rag.validation.checks import MAX_FINDINGS, texts_in
from kiwi_rag.validation.secret_patterns import DOCUMENTED, PRIVATE_KEY, Pattern, contextual, find, patterns, present

MAX_MATCHES = 2_000
"""Credentials in a text that are listed one by one; all text after them is one more."""
MAX_LINES = 3
"""Lines over which a credential may be split where words stand before and after it."""

_SHORTEST = 20
"""Every credential of a pattern without a context, and every encoded text that is decoded, has so many characters."""

_WRAPPED = 60
"""Programs that encode break lines after so many characters or more."""

# What stands between two literals of one text. The group keeps it when a text is split.
_LITERAL_SEPARATOR = re.compile(r"([\"'][\s+\\]*+[rRbBuUfF]{0,2}[\"'])")
# What ends a line, and what stands before the text of the next one; and what may stand at the end of a line. No
# credential goes on after an empty line.
_LINE_SEPARATOR = re.compile(r"(\n[ \t]*+(?!\r?\n)(?:[>#*|+-][ \t]++|//[ \t]*+)?[\"']?)")
_LINE_END = re.compile(r"[\"'\\]?[ \t]*\r?\Z")
_ENDS = tuple("\"'\\ \t\r")
# Text without spaces that one of these encodes, and hexadecimal digits with spaces.
_BASE64 = re.compile(r"(?<![\w+/-])[A-Za-z0-9+/_-]{24,}+={0,2}")
_LAST_LINE = re.compile(r"\s{1,20}([A-Za-z0-9+/]{2,22}={1,2})")
_HEXADECIMAL = re.compile(r"(?<![0-9A-Za-z])(?:0x)?(?:[0-9A-Fa-f]{2}[ :]?){20,}+")
_ESCAPE = r"(?:%[0-9A-Fa-f]{2}|&#?\w{2,8};|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2})"
_ESCAPED = re.compile(rf"(?<![\w.+=~:/@-])[\w.+=~:/@-]*+(?:{_ESCAPE}[\w.+=~:/@-]*+)++")
_CODE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\x([0-9A-Fa-f]{2})")
_PRINTABLE = re.compile(rb"[\t\n\r -~]{12}")


class _JoinedText:
    """A text without the separators between its parts, but for each `step`-th from the `first` on.

    `pieces` are the parts of the original with the separators between them. There may be millions, so no Python code
    of this class runs for each, and the offsets are computed only when something was found.
    """

    def __init__(self, pieces: list[str], first: int = 0, step: int = 0) -> None:
        self._pieces = pieces
        self._kept = pieces.copy()
        self._kept[1::2] = [""] * (len(pieces) // 2)
        if step:
            self._kept[2 * first + 1 :: 2 * step] = pieces[2 * first + 1 :: 2 * step]
        self.text = "".join(self._kept)

    def original_offset(self, offset: int) -> int:
        """Return where a character of the joined text stands in the original."""
        starts, originals = self._offsets
        part = bisect_right(starts, offset) - 1
        return originals[part] + offset - starts[part]

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return where a part of the joined text that is not empty stands in the original."""
        return self.original_offset(start), self.original_offset(end - 1) + 1

    @cached_property
    def _offsets(self) -> tuple[Sequence[int], Sequence[int]]:
        """Where each piece starts, in the joined text and in the original."""
        starts = (array("q", accumulate(map(len, pieces), initial=0)) for pieces in (self._kept, self._pieces))
        return next(starts), next(starts)


class _DecodedText:
    """The decoded texts of the encoded parts of a text.

    Long parts with only white space after them continue in the next line. After others stands the end of a line.
    """

    def __init__(self, text: str, words: Sequence[str]) -> None:
        parts = sorted(_decoded_parts(text, words))
        decoded = [
            part if end - start >= _WRAPPED and text[end:following].isspace() else f"{part}\n"
            for (start, end, part), (following, _, _) in pairwise([*parts, (len(text), 0, "")])
        ]
        self._parts = parts
        self._starts = [0, *accumulate(map(len, decoded))]
        self.text = "".join(decoded)

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return where the encoded parts stand that a part of the decoded text is from."""
        first, last = (bisect_right(self._starts, offset) - 1 for offset in (start, end - 1))
        return self._parts[first][0], self._parts[last][1]


class _Match(NamedTuple):
    """A credential with its offsets in the original text; ``secret`` is what it reads without separators."""

    start: int
    end: int
    kind: str
    secret: str


def check_secrets(text: str, metadata: Mapping[str, Any] | None = None, path: str = "") -> list[Finding]:
    """Return a finding for every credential in `text` or in a value of `metadata`; none shows the secret itself."""
    findings: list[Finding] = []
    starts = line_starts(text)
    in_text = [(match, bisect_right(starts, match.start)) for match in _Search(text).matches]
    in_metadata = [(match, 0) for match in _Search("\n\n".join(texts_in(metadata))).matches]
    reported: set[tuple[str, object]] = set()
    for match, line in in_text + in_metadata:
        # The same credential again, or one of the same kind on the same line, is reported once.
        keys = {(match.kind, match.secret), (match.kind, line or match.secret)}
        if reported.isdisjoint(keys):
            findings.append(_finding(match.kind, match.secret, line, path))
        reported |= keys
    return findings[:MAX_FINDINGS]


def spans(text: str) -> list[tuple[int, int, str]]:
    """Return the start offset, the end offset and the kind of every credential in `text`.

    A private key's span reaches to the line that ends it. Examples from makers' documentation are left out. One that
    is found in the text as it is is not searched across lines, where the word after it would seem to be part of it.
    After `MAX_MATCHES` credentials, all text that follows is the last span.
    """
    search = _Search(text)
    found = [(match.start, match.end, match.kind) for match in search.matches if not DOCUMENTED.search(match.secret)]
    if search.end < len(text):
        found.append((search.end, len(text), f"more than {MAX_MATCHES:,} in one file; the rest of the file"))
    return sorted(found)


class _Search:
    """The credentials in a text, in order, and the offset up to which it was searched."""

    def __init__(self, text: str) -> None:
        self.matches: list[_Match] = []
        self.end = len(text)
        self._text = text
        # One byte a character: 1 if the character belongs to a credential that was found before.
        self._taken = bytearray(len(text))
        words = _long_words(text)
        whole = _JoinedText([text])
        self._add(whole, [*present(words), *contextual()], _private_key_spans(whole, text))
        if (decoded := _DecodedText(text, words)).text:
            keys = _private_key_spans(_JoinedText([decoded.text]), decoded.text)
            self._add(decoded, patterns(), (decoded.original_span(*span) for span in keys))
        for joined, among in _joined_texts(text[: self.end], set(words)):
            self._add(joined, among, _private_key_spans(joined, text))

    def _add(
        self, view: _JoinedText | _DecodedText, among: Sequence[Pattern], keys: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Add the credentials of a view. After `MAX_MATCHES` of them the search ends where the next one starts."""
        added = _merged([*self._new_private_keys(keys), *self._new_tokens(view, among)])
        self.matches = sorted([*self.matches, *added], key=lambda match: match.start)
        if len(self.matches) > MAX_MATCHES:
            self.end = min(self.end, self.matches[MAX_MATCHES].start)
            del self.matches[MAX_MATCHES:]
        for match in added:
            self._taken[match.start : match.end] = b"\1" * (match.end - match.start)

    def _new_private_keys(self, spans: Iterable[tuple[int, int]]) -> Iterator[_Match]:
        before_end = takewhile(lambda span: span[0] < self.end, spans)
        new = (span for span in before_end if self._taken.find(1, *span) < 0)
        for start, end in islice(new, MAX_MATCHES + 1):
            yield _Match(start, end, PRIVATE_KEY, self._text[start : start + 40])

    def _new_tokens(self, view: _JoinedText | _DecodedText, among: Sequence[Pattern]) -> Iterator[_Match]:
        key = range(0)
        for kind, start, end in find(view.text, among):
            first, last = view.original_span(start, end)
            if first in key or first >= self.end or self._taken.find(1, first, last) >= 0:
                continue
            if kind == PRIVATE_KEY and isinstance(view, _JoinedText):
                last = _key_end(self._text, last, len(self._text))
                key = range(first, last)
            yield _Match(first, last, kind, view.text[start:end])


def _merged(matches: Iterable[_Match]) -> list[_Match]:
    """Return the matches in order, those that overlap as one, of the kind of the first."""
    merged: list[_Match] = []
    for match in sorted(matches, key=lambda match: (match.start, -match.end)):
        first = merged.pop() if merged and match.start < merged[-1].end else match
        merged.append(first._replace(end=max(first.end, match.end)))
    return merged


def _finding(kind: str, secret: str, line: int, path: str) -> Finding:
    if DOCUMENTED.search(secret):
        message = f"{kind} {secret[:4]}…, the example from its maker's documentation"
        return Finding("secrets.example", message, line, path, "ignore this if the example is intended", "warning")
    message = kind if kind == PRIVATE_KEY or kind.startswith("Password") else f"{kind} {secret[:4]}…"
    hint = "revoke it at its issuer, then remove it from the file and write where it is kept instead"
    return Finding("secrets.found", f"the file contains a credential: {message}", line, path, hint)


def _long_words(text: str) -> list[str]:
    """Return the parts between spaces, quotation marks and commas that are long enough for a credential."""
    return [word for word in text.replace('"', " ").replace(",", " ").split() if len(word) >= _SHORTEST]


def _joined_texts(text: str, words: Set[str]) -> Iterator[tuple[_JoinedText, Sequence[Pattern]]]:
    """Yield `text` with literals joined, with all lines joined, and in groups of two and three lines.

    In groups, because a key between two words would be one word with them if all lines were joined. With each comes
    what to search it for: the patterns of the words that are not among those of the text. Values of names are not
    searched, as the name would get the value of the next line.
    """
    for pieces in (_LITERAL_SEPARATOR.split(text), _lines(text)):
        if len(pieces) > 1:
            joined = _JoinedText(pieces)
            yield joined, (among := present(word for word in _long_words(joined.text) if word not in words))
    for lines in range(2, MAX_LINES + 1):
        for first in range(lines) if len(pieces) > 3 and among else ():
            yield _JoinedText(pieces, first, lines), among


def _lines(text: str) -> list[str]:
    """Split a text into lines and what separates them, which may be quotes, signs of comments and backslashes, too."""
    pieces = _LINE_SEPARATOR.split(text)
    for index in range(0, len(pieces) - 1, 2):
        if (line := pieces[index])[-1:] in _ENDS and (end := _LINE_END.search(line)):
            pieces[index : index + 2] = line[: end.start()], end[0] + pieces[index + 1]
    return pieces


def _decoded_parts(text: str, words: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield offsets and decoded text of each part of `text` that may be encoded."""
    end = 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        for pattern, decode in _ENCODINGS:
            for found in pattern.finditer(text, start, end):
                wrapped = decode is _from_base64 and len(found[0]) >= _WRAPPED
                tail = _LAST_LINE.match(text, found.end()) if wrapped else None
                if decoded := decode(found[0] + (tail[1] if tail else "")):
                    yield found.start(), (tail or found).end(), decoded
    if sum(len(word) == 2 for word in text.split()) >= _SHORTEST:
        yield from (
            (*found.span(), _from_hexadecimal(found[0])) for found in _HEXADECIMAL.finditer(text) if " " in found[0]
        )


def _from_base64(encoded: str) -> str:
    """Return the text that base64 of either alphabet encodes, or nothing if its beginning is no text."""
    standard = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    if not _PRINTABLE.match(binascii.a2b_base64(standard[:16])):
        return ""
    return binascii.a2b_base64(standard + "A" * (-len(standard) % 4)).decode("latin-1")


def _from_hexadecimal(encoded: str) -> str:
    decoded = bytes.fromhex(encoded.removeprefix("0x").replace(":", " "))
    return decoded.decode("latin-1") if _PRINTABLE.match(decoded) else ""


def _unescaped(encoded: str) -> str:
    text = html.unescape(unquote(encoded, errors="replace"))
    text = _CODE.sub(lambda found: chr(int(found[1] or found[2], 16)), text)
    return text.encode("utf-8", "replace").decode()


_ENCODINGS = ((_BASE64, _from_base64), (_HEXADECIMAL, _from_hexadecimal), (_ESCAPED, _unescaped))

_MARKERS = ("PRIVATE KEY", "PuTTY-User-Key-File")
"""Every private key begins with text that contains one of these."""

_LONGEST = 16_384
_HEAD_CHARACTERS = 600
_BEGIN = re.compile(
    r"-{0,5}BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-{0,5}|PuTTY-User-Key-File-\d:[^\n]{1,40}\n?Encryption:"
)
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}KEY(?: BLOCK)?-----")
# Letters of both cases, or letters and digits: neither a word nor a path. RFC 7468 breaks lines at 64 characters.
_MIXED = r"(?=[A-Za-z+/]{0,64}[0-9+=]|[A-Za-z/]{0,64}[a-z][A-Z]|[A-Za-z/]{0,64}[A-Z]{2}[A-Za-z/]{0,64}[a-z])"
_KEY_LINE = re.compile(rf"(?<![A-Za-z0-9+/]){_MIXED}[A-Za-z0-9+/]{{16,}}|[A-Za-z0-9+/]{{40,}}")
_KEY_START = re.compile(r"(?:\\[nr]|[A-Za-z0-9+/\n]){16,}")
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


def _private_key_spans(joined: _JoinedText, text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end offset of each private key in `text`, in order; none overlaps another.

    The begin markers are searched in `joined`, the end markers in the original text.
    """
    if not any(marker in joined.text for marker in _MARKERS):
        return
    begins = [match.span() for match in _BEGIN.finditer(joined.text)]
    ends = [match.span() for match in _END.finditer(text)]
    last = 0
    for (begin, stop), (following, _) in pairwise([*begins, (len(joined.text), 0)]):
        start, body = joined.original_offset(begin), joined.original_offset(stop - 1) + 1
        if start < last or not _is_key(joined.text, stop, following):
            continue
        limit = joined.original_offset(following) if following < len(joined.text) else len(text)
        index = bisect_left(ends, (body, 0))
        if index < len(ends) and ends[index][0] <= min(limit, body + _LONGEST):
            last = ends[index][1]
        else:
            last = _key_end(text, body, limit)
        yield start, last


def _key_end(text: str, position: int, limit: int) -> int:
    """Return where the lines of key data at `position` end."""
    body = _BODY.match(text, position, limit)
    return body.end() if body else position


def _is_key(joined: str, position: int, following: int) -> bool:
    """Return whether key data follows the begin marker, and not prose that mentions it."""
    head = joined[position : min(position + _HEAD_CHARACTERS, following)]
    if joined.startswith("Encryption:", position - 11):
        return True
    immediate = _KEY_START.match(head)
    long = sum(len(match[0]) for match in _KEY_LINE.finditer(head.partition("-----END")[0]))
    return bool(immediate and len(immediate[0].replace("\n", "")) >= 16) or long >= 40
