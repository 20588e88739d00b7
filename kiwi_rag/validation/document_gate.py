"""Steps 0 to 6 of the gate for documents, over the bytes of a file.

A file that cannot be read as text is refused. Credentials and hidden instructions are redacted
(`kiwi_rag.validation.redaction`), and the rest of the file is indexed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kiwi_rag.errors import MalformedEnvelope
from kiwi_rag.formats.documents import parse
from kiwi_rag.formats.outcome import ParsedDocument
from kiwi_rag.model import Document, Finding, sha256_hex
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing.statement import check_path
from kiwi_rag.validation import injection, redaction, secrets
from kiwi_rag.validation.policy import Policy

MAX_LABEL_CHARACTERS = 200
"""Characters of a heading, a title or a label."""


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A file of a workspace as it was read.

    ``path`` is relative to the workspace's root. ``labels`` is metadata that is not from the file's content:
    ``last_modified``, ``git_commit``, the ``rules`` of the run, and ``service`` if the workspace's settings name one,
    which takes precedence over a service that the content names.
    """

    path: str
    data: bytes
    labels: Mapping[str, str] = field(default_factory=dict)


def inspect_document(file: DocumentFile, policy: Policy) -> tuple[Document | None, tuple[Finding, ...]]:
    """Run steps 0 to 6 over a file; return the document that is left after redaction, and every finding.

    The document is None if the file is too large, is no text, is empty, or has a path that cannot name a document.
    """
    # 0. Bounds
    refusal = _refusal(file, policy)
    if refusal:
        return None, (refusal,)
    text, findings = redaction.decode(file.data, file.path)
    text, removed = redaction.without_unseen(text, file.path)
    findings += removed
    # 5. Secrets, before anything is parsed: titles, headings and labels are made from what is left.
    text, removed = redaction.without_secrets(text, file.path)
    findings += removed
    if not text.strip():
        return None, (*findings, Finding("bounds.empty", "the file is empty", 0, file.path, "", "warning"))
    # 1. Form, 2. Structure and 3. Metadata; 4. Permissions are for items only
    parsed = parse(file.path, text)
    # 6. Hidden instructions
    if parsed.file_type not in injection.SOURCE_CODE:
        redact = redaction.without_hidden if parsed.file_type in injection.MARKDOWN else redaction.without_comments
        text, removed = redact(text, file.path, policy.hidden)
        findings += removed
        parsed = parse(file.path, text) if removed else parsed
    all_findings = (*findings, *parsed.findings)
    return _document(file, text, parsed, all_findings), all_findings


def _refusal(file: DocumentFile, policy: Policy) -> Finding | None:
    try:
        check_path(file.path)
    except MalformedEnvelope as error:
        return Finding("bounds.path", error.message, path=file.path, hint="rename the file")
    exclude = "leave it out with a line in .kiwiignore"
    if len(file.data) > policy.max_bytes:
        limit = f"{policy.max_bytes / (1 << 20):g} MiB"
        return Finding("bounds.size", f"the file has over {limit}", path=file.path, hint=exclude)
    if redaction.is_binary(file.data):
        return Finding("bounds.binary", "the file is binary, not text", path=file.path, hint=exclude)
    return None


def _document(file: DocumentFile, text: str, parsed: ParsedDocument, findings: tuple[Finding, ...]) -> Document:
    from_content = {
        "file_type": parsed.file_type,
        "title": parsed.title,
        "service": parsed.service,
        "domain": parsed.domain,
    }
    metadata = {"last_modified": "", "git_commit": "", **from_content}
    metadata |= {name: value for name, value in file.labels.items() if value}
    headings = (heading for section in parsed.sections for heading in section.heading)
    labels = clean_labels([*metadata.values(), *headings])
    return Document(
        ref=ItemRef(ItemType.DOCUMENT, file.path),
        files={file.path: text.encode()},
        main=file.path,
        metadata={name: labels[value] for name, value in metadata.items()},
        sections=tuple(replace(s, heading=tuple(labels[text] for text in s.heading)) for s in parsed.sections),
        findings=findings,
        source_sha256=sha256_hex(file.data),
    )


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
    clean, _ = redaction.without_unseen(text.encode("utf-8", "replace").decode(), "")
    clean, _ = redaction.without_secrets(clean, "") if has_secrets else (clean, [])
    return " ".join(clean.split())[:MAX_LABEL_CHARACTERS]
