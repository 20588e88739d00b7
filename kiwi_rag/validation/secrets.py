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
from functools import cached_property, lru_cache
from itertools import accumulate, islice, pairwise, takewhile
from operator import sub
from typing import Any, NamedTuple

from kiwi_rag.formats.outcome import line_starts
from kiwi_rag.model import Finding
from kiwi_rag.validation.checks import MAX_FINDINGS, texts_in

MAX_MATCHES = 2_000
"""Credentials in a text that are listed one by one; all text after them is one more."""
# Some detectors take quadratic time, so they search windows of the text, which overlap by the longest credential.
WINDOW = 8_192
WINDOW_OVERLAP = 2_048

# Module and class of a plugin, and text in lower case of which every credential that it finds contains some: a search
# for that is much faster than its pattern.
_PLUGINS = (
    ("aws", "AWSKeyDetector", "a3t abia acca akia asia aws"),
    ("discord", "DiscordBotTokenDetector", "."),
    ("github_token", "GitHubTokenDetector", "ghp_ gho_ ghu_ ghs_ ghr_"),
    ("jwt", "JwtTokenDetector", "eyj"),
    ("mailchimp", "MailchimpDetector", "-us"),
    ("npm", "NpmDetector", "npm _authtoken"),
    ("sendgrid", "SendGridDetector", "sg."),
    ("slack", "SlackDetector", "xox hooks.slack.com"),
    ("square_oauth", "SquareOAuthDetector", "sq0csp-"),
    ("stripe", "StripeDetector", "k_live_"),
    ("twilio", "TwilioKeyDetector", "ac sk"),
)
# Kind, such a text, and pattern of credentials that no plugin finds.
_NEWER = (
    ("GitHub Token", "github_pat_", r"\bgithub_pat_[0-9A-Za-z_]{60,90}\b"),
    ("GitLab Token", "glpat-", r"\bglpat-[0-9A-Za-z_-]{20}"),
    ("Google API Key", "aiza", r"\bAIza[0-9A-Za-z_-]{35}\b"),
    ("Anthropic API Key", "sk-ant-", r"\bsk-ant-(?:api|admin)[0-9]{2}-[0-9A-Za-z_-]{80,120}"),
    ("OpenAI API Key", "t3blbkfj", r"\bsk-(?:[a-z]{2,8}-)?[0-9A-Za-z_-]{20,80}T3BlbkFJ[0-9A-Za-z_-]{20,80}"),
    ("PyPI Token", "pypi-age", r"\bpypi-AgE[0-9A-Za-z_-]{60,200}"),
    ("Hugging Face Token", "hf_", r"\bhf_[A-Za-z0-9]{34}\b"),
    ("Supabase Token", "sbp_", r"\bsbp_[0-9a-f]{40}\b"),
    ("Slack App Token", "xapp-", r"\bxapp-[0-9]-[A-Z0-9]{8,14}-[0-9]{8,16}-[0-9a-f]{40,80}"),
    ("age Secret Key", "age-secret-key-1", r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}\b"),
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
    found = [(match.start, match.end, match.kind) for match in search.matches if not _DOCUMENTED.search(match.secret)]
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
        self._add(_JoinedText([text]))
        for joined in _joined_texts(text[: self.end]):
            self._add(joined)

    def _add(self, joined: _JoinedText) -> None:
        """Add the credentials of `joined`. After `MAX_MATCHES` of them the search ends where the next one starts."""
        added = _merged([*self._new_private_keys(joined), *self._new_tokens(joined)])
        self.matches = sorted([*self.matches, *added], key=lambda match: match.start)
        if len(self.matches) > MAX_MATCHES:
            self.end = min(self.end, self.matches[MAX_MATCHES].start)
            del self.matches[MAX_MATCHES:]
        for match in added:
            self._taken[match.start : match.end] = b"\1" * (match.end - match.start)

    def _new_private_keys(self, joined: _JoinedText) -> Iterator[_Match]:
        spans = takewhile(lambda span: span[0] < self.end, _private_key_spans(joined, self._text))
        new = (span for span in spans if self._taken.find(1, *span) < 0)
        for start, end in islice(new, MAX_MATCHES + 1):
            yield _Match(start, end, "Private Key", self._text[start : start + 40])

    def _new_tokens(self, joined: _JoinedText) -> Iterator[_Match]:
        """Yield the other credentials, each span once.

        A text may consist of credentials. The search stops when more were found than `MAX_MATCHES` can need.
        """
        seen: set[tuple[int, int]] = set()
        for kind, secret, offset in _tokens(joined.text):
            span = joined.original_offset(offset), joined.original_offset(offset + len(secret) - 1) + 1
            if span[0] >= self.end or len(seen) > 4 * MAX_MATCHES:
                return
            if span not in seen and self._taken.find(1, *span) < 0:
                seen.add(span)
                yield _Match(*span, kind, secret)


def _merged(matches: Iterable[_Match]) -> list[_Match]:
    """Return the matches in order, those that overlap as one: two windows find a long one in two pieces."""
    merged: list[_Match] = []
    for match in sorted(matches, key=lambda match: (match.start, -match.end)):
        first = merged.pop() if merged and match.start < merged[-1].end else match
        merged.append(first._replace(end=max(first.end, match.end)))
    return merged


def _finding(kind: str, secret: str, line: int, path: str) -> Finding:
    if _DOCUMENTED.search(secret):
        message = f"{kind} {secret[:4]}…, the example from its maker's documentation"
        return Finding("secrets.example", message, line, path, "ignore this if the example is intended", "warning")
    message = f"{kind} {'' if 'BEGIN' in secret else secret[:4] + '…'}".rstrip()
    hint = "revoke it at its issuer, then remove it from the file and write where it is kept instead"
    return Finding("secrets.found", f"the file contains a credential: {message}", line, path, hint)


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
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


@lru_cache(maxsize=1)
def _detectors() -> tuple[tuple[str, Detector], ...]:
    from importlib import import_module

    found = []
    for module, name, marks in _PLUGINS:
        plugin = getattr(import_module(f"detect_secrets.plugins.{module}"), name)()
        found.append((str(plugin.secret_type), _guarded(marks, _detector(plugin))))
    newer = [(kind, _guarded(mark, _whole_matches(re.compile(pattern)))) for kind, mark, pattern in _NEWER]
    return (*found, *newer)


def _guarded(marks: str, detect: Detector) -> Detector:
    """Return a search that runs only where the text in lower case contains one of `marks`."""
    words = marks.split()
    return lambda text, lowered: detect(text, lowered) if any(word in lowered for word in words) else ()


def _detector(plugin: Any) -> Detector:
    """Return the search of a plugin, in linear time.

    The plugin's patterns are used instead of its search, which returns only groups (of a GitHub token ``ghp``) and
    takes quadratic time for JWTs and AWS keys.
    """
    match type(plugin).__name__:
        case "AWSKeyDetector":
            identifier = re.compile(plugin.denylist[0].pattern)
            return lambda text, lowered: [*_aws_secrets(text, lowered), *map(re.Match.span, identifier.finditer(text))]
        case "JwtTokenDetector":
            return lambda text, _: _web_tokens(text, plugin)
        case "NpmDetector":  # a token that is found by its name, without the name, so that YAML keeps its key
            pattern = re.compile(plugin.denylist[0].pattern)
            return lambda text, _: [found.span(1 if found[1] else 0) for found in pattern.finditer(text)]
    return _whole_matches(*(re.compile(denied.pattern, denied.flags) for denied in plugin.denylist))


def _whole_matches(*patterns: re.Pattern[str]) -> Detector:
    return lambda text, _: [found.span() for pattern in patterns for found in pattern.finditer(text)]


def _aws_secrets(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield the secret keys of AWS: first their 40 characters are searched, then the name before them."""
    for match in _AWS_SECRET.finditer(text) if "aws" in lowered else ():
        before = lowered[max(0, match.start() - 52) : match.start()]
        if "aws" in before and _AWS_NAME.search(before):
            yield match.span(1)


def _web_tokens(text: str, plugin: Any) -> Iterator[tuple[int, int]]:
    for run in _DOTTED.finditer(text):
        for token in plugin.analyze_string(run[0]):
            start = run.start() + run[0].find(token)
            yield start, start + len(token)


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
            key_data = _BODY.match(text, body, limit)
            last = key_data.end() if key_data else body
        yield start, last


def _is_key(joined: str, position: int, following: int) -> bool:
    """Return whether key data follows the begin marker, and not prose that mentions it."""
    head = joined[position : min(position + _HEAD_CHARACTERS, following)]
    if joined.startswith("Encryption:", position - 11):
        return True
    immediate = _KEY_START.match(head)
    long = sum(len(match[0]) for match in _KEY_LINE.finditer(head.partition("-----END")[0]))
    return bool(immediate and len(immediate[0].replace("\n", "")) >= 16) or long >= 40
