"""The gate for documents: steps 0 to 6 from a file's bytes alone, and what its signature must say.

What is refused here is what cannot be read at all; what may not be shown is taken out (`kiwi_rag.validation.scrub`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kiwi_rag.errors import MalformedEnvelope
from kiwi_rag.formats.documents import ParsedDocument, parse
from kiwi_rag.model import Document, Finding, Passage, sha256_hex
from kiwi_rag.refs import ItemRef, ItemType
from kiwi_rag.signing.documents import DocumentStatement, check_path, passage_digest
from kiwi_rag.validation import scrub, secrets
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
    text, found = scrub.decode(file.data, file.path)  # 0
    for step in (scrub.without_unseen, scrub.without_secrets):  # 0, 5
        text, more = step(text, file.path)
        found += more
    if not text.strip():
        return None, (*found, Finding("bounds.empty", "the file is empty", 0, file.path, "", "warning"))
    parsed = parse(file.path, text)  # 1, 2
    if parsed.file_type not in _VISIBLE_AS_THEY_ARE:
        is_markdown = parsed.file_type in _VISIBLE_AS_MARKDOWN
        without = scrub.without_hidden if is_markdown else scrub.without_comments
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
    if scrub.is_binary(file.data):
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
    clean, _ = scrub.without_unseen(word.encode("utf-8", "replace").decode(), "")
    clean, _ = scrub.without_secrets(clean, "") if suspect else (clean, [])
    return " ".join(clean.split())[:MAX_LABEL_CHARACTERS]
