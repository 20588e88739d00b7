"""Step 5: credentials in the formats of live services.

The formats are those of ``bc-detect-secrets`` and a few newer ones. Its entropy and keyword detectors are not used,
because they report signatures, digests and prose. The text is searched unchanged, with adjacent string literals joined,
and with lines joined, so that a key that was split is found. Metadata is searched after its escapes are decoded.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, islice, takewhile
from operator import sub
from typing import Any

from kiwi_rag.formats.lines import line_starts
from kiwi_rag.model import Finding

MAX_FINDINGS = 20
MAX_MATCHES = 2_000
"""Credentials in a text that are listed one by one; all text after them is one more."""
# Some detectors take quadratic time, so they search windows of the text, which overlap by the longest credential.
WINDOW = 8_192
WINDOW_OVERLAP = 2_048

_DETECTORS = (
    ("aws", "AWSKeyDetector"),
    ("discord", "DiscordBotTokenDetector"),
    ("github_token", "GitHubTokenDetector"),
    ("jwt", "JwtTokenDetector"),
    ("mailchimp", "MailchimpDetector"),
    ("npm", "NpmDetector"),
    ("sendgrid", "SendGridDetector"),
    ("slack", "SlackDetector"),
    ("square_oauth", "SquareOAuthDetector"),
    ("stripe", "StripeDetector"),
    ("twilio", "TwilioKeyDetector"),
)
# A literal, in lower case, that every credential of a plugin contains: a search for it is much faster than its pattern.
_LITERALS = {
    "AWSKeyDetector": ("a3t", "abia", "acca", "akia", "asia", "aws"),
    "GitHubTokenDetector": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    "MailchimpDetector": ("-us",),
    "NpmDetector": ("npm", "_authtoken"),
    "SlackDetector": ("xox", "hooks.slack.com"),
    "StripeDetector": ("k_live_",),
}
# Kind, a literal that every credential of the kind contains (a search for it is much faster), and pattern.
_NEWER = (
    ("GitHub Token", "github_pat_", r"\bgithub_pat_[0-9A-Za-z_]{60,90}\b"),
    ("GitLab Token", "glpat-", r"\bglpat-[0-9A-Za-z_-]{20}"),
    ("Google API Key", "AIza", r"\bAIza[0-9A-Za-z_-]{35}\b"),
    ("Anthropic API Key", "sk-ant-", r"\bsk-ant-(?:api|admin)[0-9]{2}-[0-9A-Za-z_-]{80,120}"),
    ("OpenAI API Key", "T3BlbkFJ", r"\bsk-(?:[a-z]{2,8}-)?[0-9A-Za-z_-]{20,80}T3BlbkFJ[0-9A-Za-z_-]{20,80}"),
    ("PyPI Token", "pypi-AgE", r"\bpypi-AgE[0-9A-Za-z_-]{60,200}"),
    ("Hugging Face Token", "hf_", r"\bhf_[A-Za-z0-9]{34}\b"),
    ("Supabase Token", "sbp_", r"\bsbp_[0-9a-f]{40}\b"),
    ("Slack App Token", "xapp-", r"\bxapp-[0-9]-[A-Z0-9]{8,14}-[0-9]{8,16}-[0-9a-f]{40,80}"),
    ("age Secret Key", "AGE-SECRET-KEY-1", r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}\b"),
)
# Keys that AWS itself prints in its documentation.
_DOCUMENTED = re.compile(r"AKIA[0-9A-Z]{9}EXAMPLE|wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
# What stands between two literals of one text, and between two of its lines. The group keeps it when a text is split.
_LITERAL_SEPARATOR = re.compile(r"([\"'][\s+\\]*+[rRbBuUfF]{0,2}[\"'])")
_LINE_SEPARATOR = re.compile(r"((?:[\"'\\]|(?<![ \t]))[ \t]*+\r?\n[ \t]*+(?:[>#*|+-][ \t]++|//[ \t]*+)?[\"']?)")
_AWS_SECRET = re.compile(r"\b(?=([0-9a-zA-Z/+]{40})\b)")
_AWS_NAME = re.compile(r"aws[^\n]{0,20}?(?:key|pwd|pw|password|pass|token)[^\n]{0,20}$")
_CONTINUATION = re.compile(r"[\w=.+/-]*+")
_DOTTED = re.compile(r"(?<![\w=-])[\w=-]++(?:\.[\w=+/-]++)+")
Detector = Callable[[str, str], Iterable[tuple[int, int]]]
"""Returns the start and end offsets of the credentials of one kind in a text, which may include a name before it. The
second argument is the text in lower case."""


class _JoinedText:
    """A text without every `step`-th of its separators, from the `first` on, with its offsets in the original text.

    `pieces` are the parts of the original with the separators between them. There may be millions, so no Python code
    runs for each, and the offsets are computed only when something was found.
    """

    def __init__(self, pieces: list[str], first: int = 0, step: int = 1) -> None:
        self._pieces = pieces
        self._removed = slice(2 * first + 1, None, 2 * step)
        kept = pieces.copy()
        del kept[self._removed]
        self.text = "".join(kept)

    def original_offset(self, offset: int) -> int:
        """Return where a character of the joined text stands in the original."""
        starts, originals = self._offsets
        part = bisect_right(starts, offset) - 1
        return originals[part] + offset - starts[part]

    @cached_property
    def _offsets(self) -> tuple[Sequence[int], Sequence[int]]:
        """Where each part between two removed separators starts, in the joined text and in the original."""
        ends = array("q", accumulate(map(len, self._pieces)))[self._removed]
        lengths = accumulate(map(len, self._pieces[self._removed]))
        return array("q", [0, *map(sub, ends, lengths)]), array("q", [0, *ends])


@dataclass(frozen=True, slots=True)
class _Match:
    """A credential with its offsets in the original text; ``secret`` is what it reads without separators."""

    start: int
    end: int
    kind: str
    secret: str


def check_secrets(text: str, metadata: Mapping[str, Any] | None = None, path: str = "") -> list[Finding]:
    """Return a finding for every credential in `text` or in a value of `metadata`; none shows the secret itself."""
    findings: list[Finding] = []
    starts = line_starts(text)
    in_text = [(match, bisect_right(starts, match.start)) for match in _find(text)[0]]
    in_metadata = [(match, 0) for match in _find("\n\n".join(_strings(metadata or {})))[0]]
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
    matches, end = _find(text)
    found = [(match.start, match.end, match.kind) for match in matches if not _DOCUMENTED.search(match.secret)]
    if end < len(text):
        found.append((end, len(text), f"more than {MAX_MATCHES:,} in one file; the rest of the file"))
    return sorted(found)


def _find(text: str) -> tuple[list[_Match], int]:
    """Return the credentials in `text`, and the offset up to which it was searched."""
    # One byte a character: 1 if the character belongs to a credential that was found before.
    taken = bytearray(len(text))
    matches, end = _add_matches(_JoinedText([text]), text, taken, [], len(text))
    for joined in _joined_texts(text[:end]):
        matches, end = _add_matches(joined, text, taken, matches, end)
    return matches, end


def _add_matches(
    joined: _JoinedText, text: str, taken: bytearray, matches: list[_Match], end: int
) -> tuple[list[_Match], int]:
    """Return `matches` with those of `joined`, at most `MAX_MATCHES`; the search ends where the next one starts."""
    added = _merged(_new_matches(joined, text, taken, end))
    matches = sorted([*matches, *added], key=lambda match: match.start)
    if len(matches) > MAX_MATCHES:
        end = min(end, matches[MAX_MATCHES].start)
        matches = matches[:MAX_MATCHES]
    for match in added:
        taken[match.start : match.end] = b"\1" * (match.end - match.start)
    return matches, end


def _new_matches(joined: _JoinedText, text: str, taken: bytearray, end: int) -> Iterator[_Match]:
    """Yield the credentials of `joined` before `end` that do not overlap a taken one.

    A text may consist of credentials. The search stops when more were found than `MAX_MATCHES` can need.
    """
    yield from _new_private_keys(joined, text, taken, end)
    seen: set[tuple[int, int]] = set()
    for kind, secret, offset in _secrets(joined.text):
        span = joined.original_offset(offset), joined.original_offset(offset + len(secret) - 1) + 1
        if span[0] >= end or len(seen) > 4 * MAX_MATCHES:
            return
        if span not in seen and taken.find(1, *span) < 0:
            seen.add(span)
            yield _Match(*span, kind, secret)


def _new_private_keys(joined: _JoinedText, text: str, taken: bytearray, end: int) -> Iterator[_Match]:
    if not any(marker in joined.text for marker in MARKERS):
        return
    new = (
        span
        for span in takewhile(lambda span: span[0] < end, private_key_spans(joined.text, text, joined.original_offset))
        if taken.find(1, *span) < 0
    )
    for start, stop in islice(new, MAX_MATCHES + 1):
        yield _Match(start, stop, "Private Key", text[start : start + 40])


def _merged(matches: Iterable[_Match]) -> list[_Match]:
    """Return the matches in order, those that overlap as one: two windows find a long one in two pieces."""
    merged: list[_Match] = []
    for match in sorted(matches, key=lambda match: (match.start, -match.end)):
        if merged and match.start < merged[-1].end:
            first = merged[-1]
            merged[-1] = replace(first, end=max(first.end, match.end))
        else:
            merged.append(match)
    return merged


def _finding(kind: str, secret: str, line: int, path: str) -> Finding:
    if _DOCUMENTED.search(secret):
        message = f"{kind} {secret[:4]}…, the example from its maker's documentation"
        return Finding("secrets.example", message, line, path, "ignore this if the example is intended", "warning")
    message = f"{kind} {'' if 'BEGIN' in secret else secret[:4] + '…'}".rstrip()
    hint = "revoke it at its issuer, then remove it from the file and write where it is kept instead"
    return Finding("secrets.found", f"the file contains a credential: {message}", line, path, hint)


def _secrets(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield kind, text and offset of each credential; one that ends at the end of its window is extended."""
    reached = 0
    for start in range(0, max(1, len(text)), WINDOW - WINDOW_OVERLAP):
        window = text[start : start + WINDOW]
        lowered = window.lower()
        for kind, detect in _detectors():
            for begin, end in detect(window, lowered):
                if start + begin < reached:
                    continue
                # A long one may continue after its window.
                continuation = _CONTINUATION.match(text, start + end) if end == WINDOW else None
                reached = continuation.end() if continuation else reached
                yield kind, window[begin:end] + (continuation[0] if continuation else ""), start + begin
        if start + WINDOW >= len(text):
            break


def _joined_texts(text: str) -> Iterator[_JoinedText]:
    """Yield `text` with literals joined, with all lines joined, and with lines joined in pairs.

    In pairs, because a key between two words would be one word with them if all lines were joined.
    """
    if len(pieces := _LITERAL_SEPARATOR.split(text)) > 1:
        yield _JoinedText(pieces)
    if len(pieces := _LINE_SEPARATOR.split(text)) > 1:
        yield _JoinedText(pieces)
    if len(pieces) > 3:
        yield _JoinedText(pieces, 0, 2)
        yield _JoinedText(pieces, 1, 2)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


@lru_cache(maxsize=1)
def _detectors() -> tuple[tuple[str, Detector], ...]:
    from importlib import import_module

    plugins = [getattr(import_module(f"detect_secrets.plugins.{module}"), name)() for module, name in _DETECTORS]
    newer = [(kind, _whole_matches(literal, re.compile(pattern))) for kind, literal, pattern in _NEWER]
    return (*((str(plugin.secret_type), _guarded(plugin)) for plugin in plugins), *newer)


def _guarded(plugin: Any) -> Detector:
    """Return the search of a plugin, in linear time.

    The plugin's patterns are used instead of its search, which returns only groups (of a GitHub token ``ghp``) and
    takes quadratic time for JWTs and AWS keys.
    """
    name = type(plugin).__name__
    if name == "JwtTokenDetector":
        return lambda text, _: _tokens(text, plugin) if "eyJ" in text else ()
    if name == "AWSKeyDetector":
        return _aws(plugin)
    patterns = [re.compile(p.pattern, p.flags) for p in plugin.denylist]
    literals, span_of = _LITERALS.get(name, ()), _span_without_name if name == "NpmDetector" else re.Match.span

    def detect(text: str, lowered: str) -> Iterable[tuple[int, int]]:
        if literals and not any(literal in lowered for literal in literals):
            return ()
        return [span_of(match) for pattern in patterns for match in pattern.finditer(text)]

    return detect


def _span_without_name(match: re.Match[str]) -> tuple[int, int]:
    """Return the span of a token that was found by its name, without the name, so that YAML keeps its key."""
    return match.span(1) if match[1] else match.span()


def _aws(plugin: Any) -> Detector:
    """Return the search for AWS keys. Of a secret key, its 40 characters are found first, then the name before them."""
    identifier = re.compile(plugin.denylist[0].pattern)

    def detect(text: str, lowered: str) -> Iterator[tuple[int, int]]:
        if any(part in lowered for part in _LITERALS["AWSKeyDetector"]):
            yield from (match.span() for match in identifier.finditer(text))
        for match in _AWS_SECRET.finditer(text) if "aws" in lowered else ():
            before = lowered[max(0, match.start() - 52) : match.start()]
            if "aws" in before and _AWS_NAME.search(before):
                yield match.span(1)

    return detect


def _tokens(text: str, plugin: Any) -> Iterator[tuple[int, int]]:
    for run in _DOTTED.finditer(text):
        for token in plugin.analyze_string(run[0]):
            start = run.start() + run[0].find(token)
            yield start, start + len(token)


def _whole_matches(literal: str, pattern: re.Pattern[str]) -> Detector:
    return lambda text, _: [match.span() for match in pattern.finditer(text)] if literal in text else ()


MARKERS = ("PRIVATE KEY", "PuTTY-User-Key-File")
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


def private_key_spans(joined: str, text: str, origin: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    """Yield start and end offset of each private key in `text`, in order; none overlaps another.

    Parameters
    ----------
    joined
        The text with its lines or literals joined, in which the begin markers are searched.
    text
        The original text, in which the end markers are searched.
    origin
        Maps an offset in `joined` to one in `text`.
    """
    begins = [match.span() for match in _BEGIN.finditer(joined)]
    ends = [match.span() for match in _END.finditer(text)]
    end_starts = [start for start, _ in ends]
    last = 0
    for number, (begin, stop) in enumerate(begins):
        start, body = origin(begin), origin(stop - 1) + 1
        if start < last or not _is_key(
            joined, stop, begins[number + 1][0] if number + 1 < len(begins) else len(joined)
        ):
            continue
        following = origin(begins[number + 1][0]) if number + 1 < len(begins) else len(text)
        index = bisect_left(end_starts, body)
        closed = index < len(ends) and ends[index][0] <= min(following, body + _LONGEST)
        last = ends[index][1] if closed else _end_of_key_data(text, body, following)
        yield start, last


def _is_key(joined: str, position: int, following: int) -> bool:
    """Return whether key data follows the begin marker, and not prose that mentions it."""
    head = joined[position : min(position + _HEAD_CHARACTERS, following)]
    if joined.startswith("Encryption:", position - 11):
        return True
    immediate = _KEY_START.match(head)
    long = sum(len(match[0]) for match in _KEY_LINE.finditer(head.partition("-----END")[0]))
    return bool(immediate and len(immediate[0].replace("\n", "")) >= 16) or long >= 40


def _end_of_key_data(text: str, body: int, following: int) -> int:
    found = _BODY.match(text, body, following)
    return found.end() if found else body
