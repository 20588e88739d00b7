"""Steps 0, 5 and 6 for documents: credentials, hidden and invisible text are removed and reported.

An item with a credential or a hidden instruction is refused, because its author can correct it. A workspace's file is
indexed without them, because a file that is missing from the index would be missed. The number of lines stays the same.
"""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from kiwi_rag.formats.lines import line_starts
from kiwi_rag.model import Finding, Severity
from kiwi_rag.validation import checks, injection, secrets

REDACTED = "(redacted)"
"""Round brackets have no meaning in YAML, JSON and Markdown, so the rest of the file still parses."""
HIDDEN = "(hidden text)"
MAX_FINDINGS = 20

_BINARY_SAMPLE = 8192


def is_binary(data: bytes) -> bool:
    """Return whether bytes are not text, by git's rule: a NUL near the beginning, except after a mark of UTF-16."""
    return b"\0" in data[:_BINARY_SAMPLE] and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def decode(data: bytes, path: str) -> tuple[str, list[Finding]]:
    """Return bytes as text with line feeds alone between lines, without a byte-order mark.

    Bytes that are neither UTF-8 nor marked as UTF-16 are read as Windows-1252, which has all letters of Latin-1, with a
    warning.
    """
    found = []
    try:
        text = data.decode(_unicode_of(data))
    except UnicodeDecodeError as error:
        text = data.decode("cp1252", "replace")
        line = data.count(b"\n", 0, error.start) + 1
        hint = "save the file as UTF-8"
        message = "the file is not UTF-8, so it is read as Windows-1252"
        found.append(Finding("document.encoding", message, line, path, hint, "warning"))
    return text.removeprefix("\ufeff").replace("\r\n", "\n"), found


def without_unseen(text: str, path: str) -> tuple[str, list[Finding]]:
    """Return `text` without invisible and reordering characters, and one warning for each kind of them.

    A control character becomes a space, because it may separate words. The others are removed.
    """
    positions = list(checks.violations(text))
    if not positions:
        return text, []
    pieces, last = [], 0
    kinds: dict[str, tuple[int, int]] = {}
    for position in positions:
        code = checks.code_of(text[position])
        count, line = kinds.get(code, (0, 0))
        kinds[code] = count + 1, line or text.count("\n", 0, position) + 1
        pieces += [text[last:position], " " if code == "bounds.control" else ""]
        last = position + 1
    return "".join([*pieces, text[last:]]), [_unseen(code, *places, path) for code, places in kinds.items()]


def without_secrets(text: str, path: str) -> tuple[str, list[Finding]]:
    """Return `text` with every live-format credential replaced by `REDACTED`, and a warning for each."""
    spans = secrets.spans(text)
    starts = line_starts(text) if spans else []
    listed = [*spans[: MAX_FINDINGS - 1], *spans[MAX_FINDINGS - 1 :][-1:]]
    found = [
        Finding(
            "secrets.redacted",
            f"a credential ({kind}) was redacted",
            bisect_right(starts, start),
            path,
            "revoke it at its issuer, and keep its successor outside of the workspace",
            "warning",
        )
        for start, _, kind in listed
    ]
    return _replaced(text, [(start, end) for start, end, _ in spans], REDACTED), found


def without_hidden(text: str, path: str, severity: Severity) -> tuple[str, list[Finding]]:
    """Return a Markdown text without hidden text that may instruct an agent, and a warning for each place."""
    spans = [span for span in injection.spans(text, path, severity) if span.finding.is_error]
    clean = _replaced(text, [(span.start, span.end) for span in spans], HIDDEN)
    return clean, _warnings(spans)


def without_comments(text: str, path: str, severity: Severity) -> tuple[str, list[Finding]]:
    """Return a text without the HTML comments that may instruct an agent, and a warning for each."""
    if injection.is_source_code(path):
        return text, []
    spans = [span for span in injection.comment_spans(text, path, severity) if span.finding.is_error]
    clean = _replaced(text, [(span.start, span.end) for span in spans], HIDDEN)
    return clean, _warnings(spans)


def _unicode_of(data: bytes) -> str:
    return "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"


def _unseen(code: str, count: int, line: int, path: str) -> Finding:
    places = "1 place" if count == 1 else f"{count} places"
    message = f"invisible or reordering characters were removed in {places}"
    return Finding(code, message, line, path, "remove them", "warning")


def _warnings(spans: list[injection.Span]) -> list[Finding]:
    """Return the first findings and the last one as warnings; the last one may say that the rest was left out."""
    return [_as_warning(span.finding) for span in [*spans[: MAX_FINDINGS - 1], *spans[MAX_FINDINGS - 1 :][-1:]]]


def _as_warning(found: Finding) -> Finding:
    return Finding(found.code, f"redacted: {found.message}", found.line, found.path, found.hint, "warning")


def _replaced(text: str, spans: Iterable[tuple[int, int]], replacement: str) -> str:
    pieces, last = [], 0
    for start, end in _merged(spans):
        breaks = text.count("\n", start, end)
        pieces += [text[last:start], replacement, "\n" * breaks, _indent(text, end) if breaks else ""]
        last = end
    return "".join([*pieces, text[last:]])


def _indent(text: str, position: int) -> str:
    """Return the indent of the line that `position` is in, so that the rest of the line stays in its block."""
    if text[position : position + 1] in {"", "\n"}:
        return ""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans in order; overlapping ones are merged."""
    current: tuple[int, int] | None = None
    for start, end in sorted(spans):
        if current and start <= current[1]:
            current = current[0], max(current[1], end)
            continue
        if current:
            yield current
        current = start, end
    if current:
        yield current
