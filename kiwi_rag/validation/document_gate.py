"""The gate for documents: steps 0 to 6 from a file's bytes alone, and what its signature must say.

What cannot be read at all is refused here; what may not be shown is taken out (`kiwi_rag.validation.redaction`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kiwi_rag.errors import MalformedEnvelope
from kiwi_rag.formats import parse_item
from kiwi_rag.formats.documents import parse
from kiwi_rag.formats.outcome import ParsedDocument
from kiwi_rag.model import Document, Finding, Item, Passage, Severity, sha256_hex
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing.document_statement import DocumentStatement, check_path, passage_digest
from kiwi_rag.validation import checks, injection, permissions, redaction, secrets
from kiwi_rag.validation.policy import Policy

MAX_LABEL_CHARACTERS = 200
"""Characters of a heading, a title or a label."""
_VISIBLE_AS_MARKDOWN = ("markdown", "adr")
_VISIBLE_AS_THEY_ARE = ("java", "python")


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A file of a workspace as it was read.

    ``path`` stands below the workspace's root. ``labels`` are what is known of it from outside: ``last_modified``,
    ``git_commit``, the ``rules`` of the run, and ``service`` where the workspace's settings name one, which goes before
    the file's own words.
    """

    path: str
    data: bytes
    labels: Mapping[str, str] = field(default_factory=dict)


def inspect_document(file: DocumentFile, policy: Policy) -> tuple[Document | None, tuple[Finding, ...]]:
    """Run steps 0 to 6 over a file; return what was kept of it, and every finding.

    The document is None where nothing can be kept: it is too large, no text, empty, or has no path that can name it.
    """
    refusal = _refusal(file, policy)
    if refusal:
        return None, (refusal,)
    text, found = redaction.decode(file.data, file.path)  # 0
    for step in (redaction.without_unseen, redaction.without_secrets):  # 0, 5
        text, more = step(text, file.path)
        found += more
    if not text.strip():
        return None, (*found, Finding("bounds.empty", "the file is empty", 0, file.path, "", "warning"))
    parsed = parse(file.path, text)  # 1, 2
    if parsed.file_type not in _VISIBLE_AS_THEY_ARE:
        is_markdown = parsed.file_type in _VISIBLE_AS_MARKDOWN
        without = redaction.without_hidden if is_markdown else redaction.without_comments
        text, more = without(text, file.path, policy.hidden)  # 6
        parsed = parse(file.path, text) if more else parsed
        found += more
    findings = (*found, *parsed.findings)
    return _document(file, text, parsed, findings), findings


def statement_findings(
    read: DocumentStatement, document: Document, passages: Sequence[Passage], audience: str
) -> list[Finding]:
    """Return what a verified statement says that is not so of the document at hand."""
    wanted = {
        "signature.audience": (read.registry, audience),
        "signature.other-item": (read.path, document.path),
        "signature.content": (read.content_sha256, document.content_sha256),
        "signature.metadata": (dict(read.metadata), dict(document.metadata)),
        "signature.passages": (read.passages, tuple(map(passage_digest, passages))),
    }
    return [
        Finding(code, f"what was signed is of another {_SAID[code]}", path=document.path, hint="kiwi workspace index")
        for code, (said, found) in wanted.items()
        if said != found
    ]


_SAID = {
    "signature.audience": "registry",
    "signature.other-item": "path",
    "signature.content": "content",
    "signature.metadata": "title, type, service or time",
    "signature.passages": "splitting into passages",
}


def _refusal(file: DocumentFile, policy: Policy) -> Finding | None:
    try:
        check_path(file.path)
    except MalformedEnvelope as error:
        return Finding("bounds.path", error.message, path=file.path, hint="rename the file")
    if len(file.data) > policy.max_bytes:
        limit = f"{policy.max_bytes / (1 << 20):g} MiB"
        return Finding("bounds.size", f"the file has over {limit}", path=file.path, hint="name it in .kiwiignore")
    if redaction.is_binary(file.data):
        return Finding("bounds.binary", "the file is no text", path=file.path, hint="name it in .kiwiignore")
    return None


def _document(file: DocumentFile, text: str, parsed: ParsedDocument, findings: tuple[Finding, ...]) -> Document:
    own = {"file_type": parsed.file_type, "title": parsed.title, "service": parsed.service, "domain": parsed.domain}
    metadata = {"last_modified": "", "git_commit": "", **own, **{n: value for n, value in file.labels.items() if value}}
    words = cleaned([*metadata.values(), *(word for section in parsed.sections for word in section.heading)])
    return Document(
        ref=ItemRef(ItemType.DOCUMENT, file.path),
        content=text,
        metadata={name: words[value] for name, value in metadata.items()},
        sections=tuple(replace(s, heading=tuple(words[word] for word in s.heading)) for s in parsed.sections),
        findings=findings,
        source_sha256=sha256_hex(file.data),
    )


def cleaned(words: Iterable[str]) -> Mapping[str, str]:
    """Return word → what may be shown of it, for headings, titles and labels.

    They are made from what was decoded (escapes of YAML and JSON) or put together (Markdown without its marks), so
    they are looked at once more: unseen characters, credentials and line ends go, and so does what is too long.
    """
    known = dict.fromkeys(words)
    suspect = secrets.spans("\n\n".join(known)) != []
    return {word: _cleaned(word, suspect) for word in known}


def _cleaned(word: str, suspect: bool) -> str:
    if word.isascii() and word.isprintable() and len(word) <= MAX_LABEL_CHARACTERS and not suspect:
        return word
    clean, _ = redaction.without_unseen(word.encode("utf-8", "replace").decode(), "")
    clean, _ = redaction.without_secrets(clean, "") if suspect else (clean, [])
    return " ".join(clean.split())[:MAX_LABEL_CHARACTERS]


def inspect(
    item_type: ItemType, item_id: str, data: bytes, path: str = "", hidden_severity: Severity = "error"
) -> tuple[Item | None, tuple[Finding, ...]]:
    """Run steps 0 to 6 over a candidate and return the item with every finding, in the order of the steps.

    The item is ``None`` where it cannot be built; the findings then hold at least one error. `hidden_severity` is
    what the tier's policy makes of hidden instructions.
    """
    text, found = checks.check_bounds(data, path)
    if text is None:
        return None, tuple(found)
    found += checks.check_python_encoding(text, path) if item_type is ItemType.SCRIPT else ()
    outcome = parse_item(item_type, item_id, text, path)
    found += outcome.findings
    found += _of_item(outcome.item, path) if outcome.item else ()
    found += secrets.check_secrets(text, outcome.item.metadata if outcome.item else None, path)
    found += injection.check_injection(item_type, text, path, hidden_severity)
    return outcome.item, tuple(found)


def _of_item(item: Item, path: str) -> Iterator[Finding]:
    yield from checks.check_structure(item, path)
    yield from checks.check_metadata(item, path)
    yield from permissions.check_permissions(item, path)
