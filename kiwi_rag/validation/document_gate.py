"""Steps 0 to 6 of the gate for documents, over the bytes of a file.

A file that cannot be read as text is refused. An item with a credential or a hidden instruction is refused, because its
author can correct it. A workspace's file is indexed without them, because a file that is missing from the index would
be missed: they are redacted and reported. The number of lines stays the same.
"""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kiwi_rag.errors import MalformedEnvelope
from kiwi_rag.formats.documents import CODE_TYPES, detect, parse
from kiwi_rag.formats.documents.header import generated
from kiwi_rag.formats.documents.includes import with_included
from kiwi_rag.formats.outcome import FindingList, ParsedDocument, line_starts, section
from kiwi_rag.model import Document, Finding, ItemRef, ItemType, content_digest, sha256_hex
from kiwi_rag.signing.statement import check_path
from kiwi_rag.validation import checks, injection, secrets
from kiwi_rag.validation.admission import Policy
from kiwi_rag.validation.checks import MAX_FINDINGS
from kiwi_rag.validation.injection import Span

MAX_LABEL_CHARACTERS = 200
"""Characters of a heading, a title or a label."""
REDACTED = "(redacted)"
"""Round brackets have no meaning in YAML, JSON and Markdown, so the rest of the file still parses."""
HIDDEN = "(hidden text)"
_BINARY_SAMPLE = 8192
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A file of a workspace as it was read.

    ``path`` is relative to the workspace's root. ``labels`` is metadata that is not from the file's content:
    ``last_modified``, ``git_commit``, the ``rules`` of the run, and ``service`` if the workspace's settings name one,
    which takes precedence over a service that the content names. ``included`` are the files that it includes, by path.
    """

    path: str
    data: bytes
    labels: Mapping[str, str] = field(default_factory=dict)
    included: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The digest of its bytes, and of those of the files that it includes."""
        digest = sha256_hex(self.data)
        digests = {name: sha256_hex(data) for name, data in self.included.items()}
        return content_digest({**digests, self.path: digest}) if digests else digest


def inspect_document(file: DocumentFile, policy: Policy) -> tuple[Document | None, tuple[Finding, ...]]:
    """Run steps 0 to 6 over a file; return the document that is left after redaction, and every finding.

    The document is None if the file is too large, is no text, is empty or generated, or has a path that cannot name a
    document.
    """
    # 0. Bounds
    refusal = _refusal(file, policy)
    if refusal:
        return None, (refusal,)
    text, findings = decode(file.data, file.path)
    if refusal := _generated(file.path, text):
        return None, (refusal,)
    # 5. Secrets, before anything is parsed: titles, headings and labels are made from what is left.
    text, removed = _without_unseen_and_secrets(text, file.path)
    findings += removed
    if not text.strip():
        return None, (*findings, Finding("bounds.empty", "the file is empty", 0, file.path, "", "warning"))
    # 1. Form, 2. Structure and 3. Metadata; 4. Permissions are for items only
    parsed = parse(file.path, text)
    # 6. Hidden instructions
    if parsed.rendered is None or parsed.file_type not in {*injection.MARKDOWN, "exchange"}:
        text, removed = without_hidden(text, file.path, parsed.file_type)
        parsed = parse(file.path, text) if removed else parsed
        findings += removed
    parsed, removed = _clean_rendered(parsed, file.path)
    findings += removed
    included = {name: _clean_included(name, data, findings) for name, data in sorted(file.included.items())}
    parsed = with_included(parsed, file.path, text, included)
    all_findings = (*findings, *parsed.findings)
    if not parsed.sections:
        empty = Finding("bounds.empty", "the file shows no text", 0, file.path, "", "warning")
        return None, (*all_findings, empty)
    return _document(file, {**included, file.path: text}, parsed, all_findings), all_findings


def _clean_included(path: str, data: bytes, findings: list[Finding]) -> str:
    """Return the text of an included file after steps 0, 5 and 6, and add what was found; all of its text is shown."""
    text, found = decode(data, path)
    text, removed = _without_unseen_and_secrets(text, path)
    text, hidden = without_hidden(text, path, "text")
    findings += [*found, *removed, *hidden]
    return text


def _refusal(file: DocumentFile, policy: Policy) -> Finding | None:
    try:
        check_path(file.path)
    except MalformedEnvelope as error:
        return Finding("bounds.path", error.message, path=file.path, hint="rename the file")
    exclude = "leave it out with a line in .kiwiignore"
    if len(file.data) > policy.max_bytes:
        limit = f"{policy.max_bytes / (1 << 20):g} MiB"
        return Finding("bounds.size", f"the file has over {limit}", path=file.path, hint=exclude)
    # git's rule: a NUL near the beginning, except after a mark of UTF-16.
    if b"\0" in file.data[:_BINARY_SAMPLE] and not file.data.startswith(_UTF16_MARKS):
        return Finding("bounds.binary", "the file is binary, not text", path=file.path, hint=exclude)
    return None


def _generated(path: str, text: str) -> Finding | None:
    """Return why code was written by a program, from sources or for a browser; nobody looks for its passages."""
    is_code = detect(path, text) in {*CODE_TYPES, "tsx"} or path.endswith(".css")
    reason = is_code and generated(text)
    return Finding("bounds.generated", f"generated code: {reason}", path=path, severity="warning") if reason else None


def _document(
    file: DocumentFile, texts: Mapping[str, str], parsed: ParsedDocument, findings: tuple[Finding, ...]
) -> Document:
    metadata = {"last_modified": "", "git_commit": ""}
    metadata |= {name: getattr(parsed, name) for name in ("file_type", "title", "service", "domain")}
    metadata |= {name: value for name, value in file.labels.items() if value}
    headings = (heading for section in parsed.sections for heading in section.heading)
    labels = clean_labels([*metadata.values(), *headings])
    return Document(
        ref=ItemRef(ItemType.DOCUMENT, file.path),
        files={name: text.encode() for name, text in texts.items()},
        main=file.path,
        metadata={name: labels[value] for name, value in metadata.items()},
        sections=tuple(replace(s, heading=tuple(labels[text] for text in s.heading)) for s in parsed.sections),
        findings=findings,
        source_sha256=file.sha256,
        rendered=parsed.rendered,
    )


def _clean_rendered(parsed: ParsedDocument, path: str) -> tuple[ParsedDocument, list[Finding]]:
    """Return a rendered document without what its file's text did not show: steps 0, 5 and 6 over the rendered lines.

    Entities and escapes are decoded there, and of MDX, notebooks and exchanges the rendered lines are Markdown.
    """
    if parsed.rendered is None:
        return parsed, []
    before = "\n".join(line.text for line in parsed.rendered)
    text, found = _without_unseen_and_secrets(before.encode("utf-8", "replace").decode(), path)
    if parsed.file_type in {*injection.MARKDOWN, "notebook", "exchange"}:
        text, removed = without_hidden(text, path, "markdown")
        found += removed
    if text == before:
        return parsed, []
    texts, rendered = text.split("\n"), parsed.rendered
    lines = tuple(line._replace(text=text) for line, text in zip(rendered, texts, strict=True))
    sections = (
        replace(cleaned, file=s.file)
        for s in parsed.sections
        if (cleaned := section(texts, s.start_line, s.end_line, s.heading, s.kind))
    )
    placed = [replace(finding, line=lines[finding.line - 1].number) for finding in found]
    return replace(parsed, rendered=lines, sections=tuple(sections)), placed


def clean_labels(texts: Iterable[str]) -> Mapping[str, str]:
    """Return, for each heading, title or label, the text of it that may be shown.

    They are decoded from YAML and JSON, or are Markdown without its markup, so they may hold what the file's text does
    not: unseen characters, credentials and line ends are removed from them too, and long ones are truncated.
    """
    distinct = dict.fromkeys(texts)
    # One search over all of them: almost none holds a credential, and a search for each would be slow.
    has_secrets = secrets.spans("\n\n".join(distinct)) != []
    return {text: _clean_label(text, has_secrets) for text in distinct}


def _clean_label(text: str, has_secrets: bool) -> str:
    if text.isascii() and text.isprintable() and len(text) <= MAX_LABEL_CHARACTERS and not has_secrets:
        return text
    clean, _ = without_unseen(text.encode("utf-8", "replace").decode(), "")
    clean, _ = without_secrets(clean, "") if has_secrets else (clean, [])
    return " ".join(clean.split())[:MAX_LABEL_CHARACTERS]


def decode(data: bytes, path: str) -> tuple[str, list[Finding]]:
    """Return bytes as text with line feeds alone between lines, without a byte-order mark.

    Bytes that are neither UTF-8 nor marked as UTF-16 are read as Windows-1252, which has all letters of Latin-1, with a
    warning.
    """
    found = []
    try:
        text = data.decode("utf-16" if data.startswith(_UTF16_MARKS) else "utf-8")
    except UnicodeDecodeError as error:
        text = data.decode("cp1252", "replace")
        line = data.count(b"\n", 0, error.start) + 1
        message = "the file is not UTF-8, so it is read as Windows-1252"
        found.append(Finding("document.encoding", message, line, path, "save the file as UTF-8", "warning"))
    return text.removeprefix("\ufeff").replace("\r\n", "\n"), found


def without_unseen(text: str, path: str) -> tuple[str, list[Finding]]:
    """Return `text` without invisible and reordering characters, and one warning for each kind of them."""
    pieces, last = [], 0
    places: dict[str, list[int]] = {}
    for position in checks.violations(text):
        code, *_ = checks.kind_of(text[position])
        places.setdefault(code, []).append(position)
        pieces += [text[last:position], " " if code == "bounds.control" else ""]  # that may separate words
        last = position + 1
    found = FindingList(path)
    for code, at in places.items():
        message = f"invisible or reordering characters were removed in {len(at)} place{'s' * (len(at) > 1)}"
        found.warn(code, message, text.count("\n", 0, at[0]) + 1, "remove them")
    return "".join([*pieces, text[last:]]), found.found


def without_secrets(text: str, path: str) -> tuple[str, list[Finding]]:
    """Return `text` with every live-format credential replaced by `REDACTED`, and a warning for each."""
    spans = secrets.spans(text)
    starts = line_starts(text) if spans else []
    hint = "revoke it at its issuer, and keep its successor outside of the workspace"
    found = [
        Span(start, end, Finding("secrets.redacted", f"a credential ({kind})", bisect_right(starts, start), path, hint))
        for start, end, kind in spans
    ]
    return _redacted(text, found, REDACTED)


def _without_unseen_and_secrets(text: str, path: str) -> tuple[str, list[Finding]]:
    text, unseen = without_unseen(text, path)
    text, found = without_secrets(text, path)
    return text, [*unseen, *found]


def without_hidden(text: str, path: str, file_type: str) -> tuple[str, list[Finding]]:
    """Return a text without hidden text that may instruct an agent, and a warning for each place."""
    return _redacted(text, [span for span in injection.spans(text, path, file_type) if span.finding.is_error], HIDDEN)


def clean_text(text: str, path: str) -> tuple[str, list[Finding]]:
    """Return Markdown that is no file after steps 0, 5 and 6: without what is not seen, credentials and hidden text."""
    text, found = _without_unseen_and_secrets(text.encode("utf-8", "replace").decode(), path)
    text, hidden = without_hidden(text, path, "markdown")
    return text, [*found, *hidden]


def _redacted(text: str, spans: Sequence[Span], replacement: str) -> tuple[str, list[Finding]]:
    """Return `text` with each span replaced, and warnings: the first ones, and the last one.

    The last one may say that the rest of the file was left out.
    """
    pieces, last = [], 0
    for start, end in _merged(spans):
        breaks = text.count("\n", start, end)
        pieces += [text[last:start], replacement, "\n" * breaks, _indent(text, end) if breaks else ""]
        last = end
    listed = [span.finding for span in (*spans[: MAX_FINDINGS - 1], *spans[MAX_FINDINGS - 1 :][-1:])]
    warnings = [replace(found, message=f"redacted: {found.message}", severity="warning") for found in listed]
    return "".join([*pieces, text[last:]]), warnings


def _indent(text: str, position: int) -> str:
    """Return the indent of the line that `position` is in, so that the rest of the line stays in its block."""
    if text[position : position + 1] in {"", "\n"}:
        return ""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _merged(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """Return the offsets of the spans in order; overlapping ones are merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted((span.start, span.end) for span in spans):
        first, last = merged.pop() if merged and start <= merged[-1][1] else (start, end)
        merged.append((first, max(last, end)))
    return merged
