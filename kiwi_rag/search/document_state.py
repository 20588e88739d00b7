"""Whether a document's file is still what was indexed.

A module beside ``state``, which a search of items imports, because this one needs the gate.
"""

from __future__ import annotations

from kiwi_rag.collection import Collection
from kiwi_rag.errors import KiwiError
from kiwi_rag.formats.documents.includes import MAX_INCLUDED_BYTES
from kiwi_rag.model import ItemState
from kiwi_rag.search.verify import VerifiedItem
from kiwi_rag.sources.source import root_of
from kiwi_rag.storage.safe_open import read_below
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.validation.document_gate import DocumentFile, inspect_document

DOCUMENT_CHANGED = "the file has changed since it was indexed"


def read_document_state(item: VerifiedItem, workspace: Collection[VectorStore]) -> ItemState | None:
    """Compare a document with its file and those that it includes; None where the file was deleted. Blocking.

    A file that this machine indexed has the digest that was recorded then. Another one is compared as it is after
    redaction. Of a shared index, a file that is not in this checkout is not compared.
    """
    path, policy = item.signed.path, workspace.policy
    root = root_of(workspace).resolve()
    try:
        data, _ = read_below(root, path, policy.max_bytes)
    except FileNotFoundError:
        return ItemState(compared=False) if policy.received_now else None
    except KiwiError:
        return ItemState(DOCUMENT_CHANGED)
    try:
        names = item.signed.digests.keys() - {path}
        included = {name: read_below(root, name, MAX_INCLUDED_BYTES)[0] for name in names}
    except (FileNotFoundError, KiwiError):
        return ItemState(DOCUMENT_CHANGED)
    file = DocumentFile(path, data, included=included)
    stamp = workspace.states.get(path) if workspace.states else None
    if stamp and stamp.digest == item.stored.digest and stamp.sha256:
        same = file.sha256 == stamp.sha256
    else:
        document, _ = inspect_document(file, policy)
        same = document is not None and document.content_sha256 == item.stored.content_sha256
    return ItemState("" if same else DOCUMENT_CHANGED)
