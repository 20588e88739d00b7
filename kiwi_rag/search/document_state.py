"""Whether a document's file is still what was indexed.

A module beside ``state``, which a search of items imports, because this one needs the gate.
"""

from __future__ import annotations

from collections.abc import Iterable

from kiwi_rag.collection import Collection
from kiwi_rag.errors import KiwiError, SourceUnreadable
from kiwi_rag.formats.documents.includes import MAX_INCLUDED_BYTES
from kiwi_rag.model import Document, ItemState, SearchResult
from kiwi_rag.search.verify import VerifiedItem
from kiwi_rag.sources.source import root_of
from kiwi_rag.storage.safe_open import read_below
from kiwi_rag.validation.admission import Policy
from kiwi_rag.validation.document_gate import DocumentFile, inspect_document

DOCUMENT_CHANGED = "the file has changed since it was indexed"


def read_document_state(item: VerifiedItem, workspace: Collection) -> ItemState | None:
    """Compare a document with its file and those that it includes; None where the file was deleted. Blocking.

    A file that this machine indexed has the digest that was recorded then. Another one is compared as it is after
    redaction. Of a shared index, a file that is not in this checkout is not compared.
    """
    path = item.signed.path
    try:
        file = _read_file(path, item.signed.digests.keys() - {path}, workspace)
    except FileNotFoundError:
        return ItemState(compared=False) if workspace.policy.received_now else None
    except KiwiError:
        return ItemState(DOCUMENT_CHANGED)
    stamp = workspace.states.get(path) if workspace.states else None
    if stamp and stamp.digest == item.stored.digest and stamp.sha256:
        same = file.sha256 == stamp.sha256
    else:
        same = _as_indexed(file, item.stored.content_sha256, workspace.policy) is not None
    return ItemState("" if same else DOCUMENT_CHANGED)


def read_document(hit: SearchResult, workspace: Collection) -> tuple[Document, bytes] | None:
    """Return a hit's document as it was indexed, and its file's bytes; None where they give other content. Blocking."""
    if hit.state.changed or not hit.state.compared:
        return None
    try:
        file = _read_file(hit.ref.item_id, hit.included, workspace)
    except (FileNotFoundError, KiwiError):
        return None
    document = _as_indexed(file, hit.content_sha256, workspace.policy)
    return (document, file.data) if document else None


def _read_file(path: str, included: Iterable[str], workspace: Collection) -> DocumentFile:
    """Read a document's file, and those that it includes.

    Raises
    ------
    FileNotFoundError
        When the document's file does not exist.
    KiwiError
        When it cannot be read, or one that it includes cannot.
    """
    if workspace.read is not None:
        return DocumentFile(path, workspace.read(path))
    root = root_of(workspace).resolve()
    data, _ = read_below(root, path, workspace.policy.max_bytes)
    try:
        return DocumentFile(path, data, included={n: read_below(root, n, MAX_INCLUDED_BYTES)[0] for n in included})
    except FileNotFoundError as error:
        raise SourceUnreadable(f"{path} includes a file that does not exist any more") from error


def _as_indexed(file: DocumentFile, content_sha256: str, policy: Policy) -> Document | None:
    """Return a file as a document, after redaction, if its content is what was signed."""
    document, _ = inspect_document(file, policy)
    return document if document is not None and document.content_sha256 == content_sha256 else None
