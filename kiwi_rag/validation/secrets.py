"""Step 5: credentials in the formats that live services issue.

The formats are those of ``bc-detect-secrets`` and a few newer ones. Its entropy and keyword detectors are left
out: they take signatures, digests and prose for secrets. The text is searched as it stands, with
adjacent string literals joined, and with line breaks taken out, so that a key cut in two is still found; and
every metadata value once its escapes are decoded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kiwi_rag.model import Finding

MAX_PLACES = 20
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
    ("private_key", "PrivateKeyDetector"),
    ("sendgrid", "SendGridDetector"),
    ("slack", "SlackDetector"),
    ("square_oauth", "SquareOAuthDetector"),
    ("stripe", "StripeDetector"),
    ("twilio", "TwilioKeyDetector"),
)
# What every credential holds that a plugin finds, in lower case: far quicker to look for than its pattern is to match.
_HELD = {
    "AWSKeyDetector": ("a3t", "abia", "acca", "akia", "asia", "aws"),
    "MailchimpDetector": ("-us",),
    "NpmDetector": ("npm", "_authtoken"),
    "SlackDetector": ("xox", "hooks.slack.com"),
    "StripeDetector": ("k_live_",),
}
# What it is, what each of its kind holds as it stands (far quicker to look for), and how it looks.
_NEWER = (
    (
        "Private Key",
        "PRIVATE KEY",
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----[\s\S]{0,200}?[A-Za-z0-9+/]{40}",
    ),
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
_DOTTED = re.compile(r"(?<![\w=-])[\w=-]++(?:\.[\w=+/-]++)+")
_BEGIN_KEY = re.compile(r"BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY")

# Up to the line that ends it; where there is none, as long as there are long lines of base64.
_KEY_BODY = re.compile(
    r"[A-Za-z0-9+/=\s\\\"':,.>#*|-]{0,16384}?-----END [A-Z0-9 ]{0,40}KEY[A-Z ]{0,8}-----"
    r"|[A-Za-z0-9+/= -]{0,80}(?:\s*[A-Za-z0-9+/=]{20,})*"
)

Detector = Callable[[str], Iterable[tuple[int, int]]]
"""Where credentials of one kind stand in a text, as start and end offsets; what leads up to one may be part of it."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """A way to read a text, and where its parts stand in the original (parallel, sorted offsets)."""

    text: str
    starts: tuple[int, ...]
    origins: tuple[int, ...]

    def origin(self, position: int) -> int:
        part = bisect_right(self.starts, position) - 1
        return self.origins[part] + position - self.starts[part]


def check(text: str, metadata: Mapping[str, Any] | None = None, path: str = "") -> list[Finding]:
    """Return a finding for every credential in `text` or in a value of `metadata`; none shows the secret itself."""
    found: dict[tuple[str, str], int] = {}
    for reading in {reading.text: reading for reading in _readings(text)}.values():
        for kind, secret, position in _secrets(reading.text):
            line = text.count("\n", 0, reading.origin(position)) + 1
            if not _is_known(found, kind, secret, line):
                found[kind, secret] = line
    for kind, secret, _ in _secrets("\n\n".join(_strings(metadata or {}))):
        found.setdefault((kind, secret), 0)
    return [_finding(kind, secret, line, path) for (kind, secret), line in list(found.items())[:MAX_PLACES]]


def spans(text: str) -> list[tuple[int, int, str]]:
    """Return where every credential in `text` stands, as start and end offsets, and of what kind it is.

    A private key's span reaches to the line that ends it. Examples from makers' documentation are left out. One that
    is whole as the text stands is not looked for across lines, where the word after it would seem to be part of it.
    """
    found: list[tuple[int, int, str]] = []
    taken = bytearray(len(text))  # a byte a character: whether it belongs to one that an earlier reading found
    for reading in {reading.text: reading for reading in _readings(text)}.values():
        fresh: dict[tuple[int, int, str], None] = {}
        for kind, secret, position in _secrets(reading.text):
            start, end = reading.origin(position), reading.origin(position + len(secret) - 1) + 1
            end = _end_of_key(text, start, end)
            if not _DOCUMENTED.search(secret) and not any(taken[start:end]):
                fresh[start, end, kind] = None
        for start, end, _ in fresh:
            taken[start:end] = b"\1" * (end - start)
        found += fresh
    return sorted(found)


def _end_of_key(text: str, start: int, end: int) -> int:
    """Return where a private key ends whose beginning was found; any other credential ends where it was found to."""
    if "PRIVATE KEY" not in text[start:end] or "-----END" in text[start:end]:
        return end
    body = _KEY_BODY.match(text, end)
    return body.end() if body else end


def _is_known(found: Mapping[tuple[str, str], int], kind: str, secret: str, line: int) -> bool:
    """Say whether an earlier reading saw this one: the same, or one of the same kind on the same line."""
    return (kind, secret) in found or any(k == kind and at == line for (k, _), at in found.items())


def _finding(kind: str, secret: str, line: int, path: str) -> Finding:
    if _DOCUMENTED.search(secret):
        message = f"{kind} {secret[:4]}…, the example from its maker's documentation"
        return Finding("secrets.example", message, line, path, "nothing to mend if that is meant", "warning")
    message = f"{kind} {'' if 'BEGIN' in secret else secret[:4] + '…'}".rstrip()
    hint = "revoke it where it was issued, then take it out; name where it is kept instead"
    return Finding("secrets.found", f"a live-format credential: {message}", line, path, hint)


def _secrets(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield kind, secret and position of each credential."""
    for start in range(0, max(1, len(text)), WINDOW - WINDOW_OVERLAP):
        window = text[start : start + WINDOW]
        for kind, detect in _detectors():
            for begin, end in detect(window):
                yield kind, window[begin:end], start + begin
        if start + WINDOW >= len(text):
            break


def _readings(text: str) -> Iterator[_Reading]:
    """Yield `text` as it is, with literals joined, with all lines joined, and with lines joined in pairs.

    In pairs, because a key between two words would be one word with them if all lines were joined.
    """
    yield _Reading(text, (0,), (0,))
    yield _without(text, list(_LITERAL_SEAM.finditer(text)))
    lines = list(_LINE_SEAM.finditer(text))
    yield from (_without(text, seams) for seams in (lines, lines[::2], lines[1::2]))


def _without(text: str, seams: Iterable[re.Match[str]]) -> _Reading:
    parts, starts, origins = [], [0], [0]
    length = last = 0
    for match in seams:
        parts.append(text[last : match.start()])
        length += match.start() - last
        last = match.end()
        starts.append(length)
        origins.append(last)
    return _Reading("".join([*parts, text[last:]]), tuple(starts), tuple(origins))


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
    """Return a plugin's search, kept linear for JWTs; a private key's marker alone, as prose names it, is no key.

    Its patterns are used themselves: of those with groups its own search gives parts, of a GitHub token ``ghp``.
    """
    name = type(plugin).__name__
    if name == "JwtTokenDetector":
        return lambda text: _tokens(text, plugin) if "eyJ" in text else ()
    patterns = [re.compile(p.pattern, p.flags) for p in plugin.denylist]
    held = _HELD.get(name, ())
    if name == "PrivateKeyDetector":
        return lambda text: [m.span() for p in patterns for m in p.finditer(text) if not _is_marker_only(m[0])]
    return lambda text: [m.span() for p in patterns for m in p.finditer(text)] if _holds_any(text, held) else ()


def _holds_any(text: str, parts: Iterable[str]) -> bool:
    lowered = text.lower() if parts else ""
    return not parts or any(part in lowered for part in parts)


def _tokens(text: str, plugin: Any) -> Iterator[tuple[int, int]]:
    for run in _DOTTED.finditer(text):
        for token in plugin.analyze_string(run[0]):
            start = run.start() + run[0].find(token)
            yield start, start + len(token)


def _is_marker_only(match: str) -> bool:
    body = _BEGIN_KEY.sub("", match).replace("-", "").replace("\n", "").replace("END", "")
    return "PuTTY" not in match and len(body) < 16


def _whole_matches(literal: str, pattern: re.Pattern[str]) -> Detector:
    return lambda text: [match.span() for match in pattern.finditer(text)] if literal in text else ()
