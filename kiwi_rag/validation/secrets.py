"""Step 5: credentials in the formats that live services issue.

The formats are those of ``bc-detect-secrets`` and a few newer ones. Its entropy and keyword detectors are left
out: they take signatures, digests and prose for secrets. The text is searched as it stands, with
adjacent string literals joined, and with line breaks taken out, so that a key cut in two is still found; and
every metadata value once its escapes are decoded.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kiwi_rag.formats.lines import line_starts
from kiwi_rag.model import Finding

MAX_PLACES = 20
MAX_MATCHES = 2_000
"""Places a text; from there on it is a list of credentials, and all of what is left of it counts as one."""
# Some detectors take time that grows with the square of what they are given; windows keep that small.
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
# What every credential holds that a plugin finds, in lower case: far quicker to look for than its pattern is to match.
_HELD = {
    "AWSKeyDetector": ("a3t", "abia", "acca", "akia", "asia", "aws"),
    "GitHubTokenDetector": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    "MailchimpDetector": ("-us",),
    "NpmDetector": ("npm", "_authtoken"),
    "SlackDetector": ("xox", "hooks.slack.com"),
    "StripeDetector": ("k_live_",),
}
# What it is, what each of its kind holds as it stands (far quicker to look for), and how it looks.
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
_LITERAL_SEAM = re.compile(r"[\"'][\s+\\]*+[rRbBuUfF]{0,2}[\"']")
_LINE_SEAM = re.compile(r"(?:[\"'\\]|(?<![ \t]))[ \t]*+\r?\n[ \t]*+(?:[>#*|+-][ \t]++|//[ \t]*+)?[\"']?")
_AWS_SECRET = re.compile(r"\b(?=([0-9a-zA-Z/+]{40})\b)")
_AWS_NAME = re.compile(r"aws[^\n]{0,20}?(?:key|pwd|pw|password|pass|token)[^\n]{0,20}$")
_REST = re.compile(r"[\w=.+/-]*+")
_DOTTED = re.compile(r"(?<![\w=-])[\w=-]++(?:\.[\w=+/-]++)+")
Detector = Callable[[str, str], Iterable[tuple[int, int]]]
"""Where credentials of one kind stand in a text, as start and end offsets; what leads up to one may be part of it. The
text is given a second time in lower case."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """A way to read a text, and where its parts stand in the original (parallel, sorted offsets)."""

    text: str
    starts: Sequence[int]
    origins: Sequence[int]

    def origin(self, position: int) -> int:
        part = bisect_right(self.starts, position) - 1
        return self.origins[part] + position - self.starts[part]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a credential stands in the original text; ``secret`` is what it reads there, seams left out."""

    start: int
    end: int
    kind: str
    secret: str


def check_secrets(text: str, metadata: Mapping[str, Any] | None = None, path: str = "") -> list[Finding]:
    """Return a finding for every credential in `text` or in a value of `metadata`; none shows the secret itself."""
    found: list[Finding] = []
    starts = line_starts(text)
    lines = ((place, bisect_right(starts, place.start)) for place in _places(text)[0])
    known: set[tuple[str, object]] = set()
    for place, line in (*lines, *((place, 0) for place in _places("\n\n".join(_strings(metadata or {})))[0])):
        # The same one again, or one of the same kind on the same line.
        if known.isdisjoint({(place.kind, place.secret), (place.kind, line or place.secret)}):
            found.append(_finding(place.kind, place.secret, line, path))
        known |= {(place.kind, place.secret), (place.kind, line or place.secret)}
    return found[:MAX_PLACES]


def spans(text: str) -> list[tuple[int, int, str]]:
    """Return where every credential in `text` stands, as start and end offsets, and of what kind it is.

    A private key's span reaches to the line that ends it. Examples from makers' documentation are left out. One that
    is whole as the text stands is not looked for across lines, where the word after it would seem to be part of it.
    After `MAX_MATCHES` places, all that follows is the last of them.
    """
    places, cut = _places(text)
    found = [(place.start, place.end, place.kind) for place in places if not _DOCUMENTED.search(place.secret)]
    rest = [(cut, len(text), f"more than {MAX_MATCHES:,} in one file; the rest of the file")] if cut < len(text) else []
    return sorted(found) + rest


def _places(text: str) -> tuple[list[_Place], int]:
    """Return what every reading of a text finds, what an earlier one found left out, and where the last of it ends."""
    taken = bytearray(len(text))  # a byte a character: whether it belongs to one that an earlier reading found
    found, cut = _read(_Reading(text, (0,), (0,)), text, taken, [], len(text))
    for reading in _readings(text[:cut]):
        found, cut = _read(reading, text, taken, found, cut)
    return found, cut


def _read(reading: _Reading, text: str, taken: bytearray, found: list[_Place], cut: int) -> tuple[list[_Place], int]:
    """Add to `found` what a reading finds; `MAX_MATCHES` stay, and the next one is where the text is cut."""
    fresh = _merged(_fresh(reading, text, taken, cut))
    found = sorted([*found, *fresh], key=lambda place: place.start)
    if len(found) > MAX_MATCHES:
        cut = min(cut, found[MAX_MATCHES].start)
        found = found[:MAX_MATCHES]
    for place in fresh:
        taken[place.start : place.end] = b"\1" * (place.end - place.start)
    return found, cut


def _fresh(reading: _Reading, text: str, taken: bytearray, cut: int) -> Iterator[_Place]:
    """Yield what a reading finds before `cut` that no earlier one took; of very many, no more than decide it."""
    ends: dict[tuple[int, int], None] = {}
    if any(marker in reading.text for marker in MARKERS):
        for begin, end in private_key_spans(reading.text, text, reading.origin):
            if begin >= cut:
                break
            if taken.find(1, begin, end) < 0:
                ends[begin, end] = None
                yield _Place(begin, end, "Private Key", text[begin : begin + 40])
            if len(ends) > MAX_MATCHES:
                break
    ends.clear()
    for kind, secret, position in _secrets(reading.text):
        start, end = reading.origin(position), reading.origin(position + len(secret) - 1) + 1
        if start >= cut or len(ends) > 4 * MAX_MATCHES:
            return
        if (start, end) not in ends and taken.find(1, start, end) < 0:
            ends[start, end] = None
            yield _Place(start, end, kind, secret)


def _merged(places: Iterable[_Place]) -> list[_Place]:
    """Return the places in order, those that overlap as one: a long one is found in pieces by two windows."""
    found: list[_Place] = []
    for place in sorted(places, key=lambda place: (place.start, -place.end)):
        if found and place.start < found[-1].end:
            first = found[-1]
            found[-1] = _Place(first.start, max(first.end, place.end), first.kind, first.secret)
        else:
            found.append(place)
    return found


def _finding(kind: str, secret: str, line: int, path: str) -> Finding:
    if _DOCUMENTED.search(secret):
        message = f"{kind} {secret[:4]}…, the example from its maker's documentation"
        return Finding("secrets.example", message, line, path, "nothing to mend if that is meant", "warning")
    message = f"{kind} {'' if 'BEGIN' in secret else secret[:4] + '…'}".rstrip()
    hint = "revoke it where it was issued, then take it out; name where it is kept instead"
    return Finding("secrets.found", f"a live-format credential: {message}", line, path, hint)


def _secrets(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield kind, secret and position of each credential; one longer than a window holds what stands in it."""
    reached = 0
    for start in range(0, max(1, len(text)), WINDOW - WINDOW_OVERLAP):
        window = text[start : start + WINDOW]
        lowered = window.lower()
        for kind, detect in _detectors():
            for begin, end in detect(window, lowered):
                if start + begin < reached:
                    continue
                # A long one may reach beyond its window.
                rest = _REST.match(text, start + end) if end == WINDOW else None
                reached = rest.end() if rest else reached
                yield kind, window[begin:end] + (rest[0] if rest else ""), start + begin
        if start + WINDOW >= len(text):
            break


def _readings(text: str) -> Iterator[_Reading]:
    """Yield `text` with literals joined, with all lines joined, and with lines joined in pairs.

    In pairs, because a key between two words would be one word with them if all lines were joined.
    """
    literals = _Seams(_LITERAL_SEAM, text)
    if literals.starts:
        yield _without(text, literals, 0, 1)
    lines = _Seams(_LINE_SEAM, text)
    if lines.starts:
        yield _without(text, lines, 0, 1)
    if len(lines.starts) > 1:
        yield _without(text, lines, 0, 2)
        yield _without(text, lines, 1, 2)


class _Seams:
    """Where a pattern matches a text, as parallel arrays of offsets: there may be millions."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self.starts, self.ends = array("q"), array("q")
        for match in pattern.finditer(text):
            self.starts.append(match.start())
            self.ends.append(match.end())


def _without(text: str, seams: _Seams, first: int, step: int) -> _Reading:
    """Return `text` without every `step`-th of the seams, from the `first` on."""
    parts, starts, origins = [], array("q", [0]), array("q", [0])
    length = last = 0
    for start, end in zip(seams.starts[first::step], seams.ends[first::step], strict=True):
        parts.append(text[last:start])
        length += start - last
        last = end
        starts.append(length)
        origins.append(last)
    return _Reading("".join([*parts, text[last:]]), starts, origins)


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

    known = [getattr(import_module(f"detect_secrets.plugins.{module}"), name)() for module, name in _DETECTORS]
    newer = [(kind, _whole_matches(literal, re.compile(pattern))) for kind, literal, pattern in _NEWER]
    return (*((str(plugin.secret_type), _guarded(plugin)) for plugin in known), *newer)


def _guarded(plugin: Any) -> Detector:
    """Return a plugin's search, kept linear for JWTs and AWS keys.

    Its patterns are used themselves: of those with groups its own search gives parts, of a GitHub token ``ghp``.
    """
    name = type(plugin).__name__
    if name == "JwtTokenDetector":
        return lambda text, _: _tokens(text, plugin) if "eyJ" in text else ()
    if name == "AWSKeyDetector":
        return _aws(plugin)
    patterns = [re.compile(p.pattern, p.flags) for p in plugin.denylist]
    held, spanned = _HELD.get(name, ()), _named if name == "NpmDetector" else re.Match.span

    def detect(text: str, lowered: str) -> Iterable[tuple[int, int]]:
        if held and not any(part in lowered for part in held):
            return ()
        return [spanned(match) for pattern in patterns for match in pattern.finditer(text)]

    return detect


def _named(match: re.Match[str]) -> tuple[int, int]:
    """Return where a token stands that was found by its name: without the name, so that YAML keeps its key."""
    return match.span(1) if match[1] else match.span()


def _aws(plugin: Any) -> Detector:
    """Return the search for AWS keys. What only its name gives away is looked for from its end, which is linear."""
    identifier = re.compile(plugin.denylist[0].pattern)

    def detect(text: str, lowered: str) -> Iterator[tuple[int, int]]:
        if any(part in lowered for part in _HELD["AWSKeyDetector"]):
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


def private_key_spans(read: str, text: str, origin: Callable[[int], int]) -> Iterator[tuple[int, int]]:
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
