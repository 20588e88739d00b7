"""One function for each SQL function over documents, as `kiwi_rag.registry.client` has them for items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import KiwiError
from kiwi_rag.model import (
    Candidate,
    Candidates,
    CollectionStatistics,
    EmbeddingRecord,
    Filters,
    StoredItem,
    StoreQuery,
)
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import raise_refusal
from kiwi_rag.signing import document_statement as statements
from kiwi_rag.signing import dsse

if TYPE_CHECKING:
    from datetime import datetime

    from kiwi_rag.registry.calls import Caller, Row

_SCORES = "cosine bm25 best_cosine first_cosine centroid_cosine best_bm25 item_bm25"
_CANDIDATE = rows.Columns(rows.PASSAGE, rows.CANDIDATE, {str: "path kind", float: _SCORES})
_STORED = rows.Columns({str: "path digest content_sha256", int: "passages"})
_LISTED = rows.Columns({str: "path digest content_sha256 rules key_id", int: "passages"})
_STATUS = rows.Columns({int: "documents passages", str | None: "fingerprint audience", dict[str, int]: "file_types"})
_NAME = rows.Columns({str: "path"})
_RECEIPT = rows.Columns({str: "digest", bool: "known"})


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document as ``list_documents`` gives it, without its envelope.

    ``content_sha256`` is of its file; ``rules`` names the rules that it was indexed by.
    """

    path: str
    digest: str
    content_sha256: str
    rules: str
    key_id: str
    passages: int
    signed_at: datetime


async def put_document(caller: Caller, records: Sequence[EmbeddingRecord], rules: str = "") -> Mapping[str, Any]:
    """Store a signed document with all its passages, at least one; return the answer, a receipt or a refusal.

    `parse_receipt` raises a refusal. The role must be ``kiwi_indexer``. `rules` names the rules that the file was
    indexed by.
    """
    # Not raised here: inside the session it would roll back the refusal's own record in the registry's audit log.
    arguments = {
        "envelope": dsse.encode(records[0].admission.envelope),
        "model_fingerprint": records[0].fingerprint,
        "passages": [rows.passage_object(record) | {"kind": record.passage.kind} for record in records],
        "rules": rules,
    }
    return rows.parse_object(await caller.value("put_document", arguments))


def parse_receipt(answer: Mapping[str, Any]) -> bool:
    """Return whether the registry had this very statement already.

    Raises
    ------
    RegistryRefused
        When the registry's own checks refused it; ``state`` is ``KW018`` when it holds one that was signed later.
    FingerprintMismatch
        When the workspace holds vectors of another model.
    RegistryError
        When the answer is neither.
    """
    raise_refusal(answer)
    with rows.parse_as("receipt"):
        return bool(_RECEIPT(answer)["known"])


async def delete_document(caller: Caller, workspace: str, path: str) -> bool:
    """Remove a document; return whether it was there. The role must be ``kiwi_indexer`` or ``kiwi_admin``."""
    return rows.parse_boolean(await caller.value("delete_document", {"workspace": workspace, "path": path}))


async def clear_documents(caller: Caller, workspace: str, limit: int) -> int:
    """Remove up to `limit` documents; fewer means that none are left, and another model may be used."""
    return rows.parse_integer(await caller.value("clear_documents", {"workspace": workspace, "max_documents": limit}))


async def note_rules(caller: Caller, workspace: str, path: str, content_sha256: str, rules: str) -> bool:
    """Record that the same content of a file was judged again, by these rules; return whether it is stored."""
    arguments = {"workspace": workspace, "path": path, "content_sha256": content_sha256, "rules": rules}
    return rows.parse_boolean(await caller.value("note_rules", arguments))


async def get_document(caller: Caller, workspace: str, path: str) -> StoredItem | None:
    """Return a document; None when there is none, or when the key that signed it was revoked."""
    found = await caller.rows("get_document", {"workspace": workspace, "path": path})
    return _parse_stored(found[0]) if found else None


async def list_documents(caller: Caller, workspace: str, filters: Filters) -> Sequence[StoredItem]:
    """Return every document that matches, ordered by path; see `parse_item_or_problem`."""
    arguments = {"workspace": workspace, "filter": filter_object(filters), "with_envelopes": True}
    found = await caller.rows("list_documents", arguments)
    return [rows.parse_item_or_problem(row, _parse_stored, _parse_ref) for row in found]


async def list_document_rows(caller: Caller, workspace: str) -> Sequence[DocumentRow]:
    """Return all documents of a workspace without their envelopes, ordered by path: 100,000 take a second or two."""
    return [_parse_row(row) for row in await caller.rows("list_documents", {"workspace": workspace})]


async def document_statistics(
    caller: Caller, workspace: str, terms: Sequence[str], fingerprint: str = ""
) -> CollectionStatistics:
    """Return what BM25 needs to know of a workspace's documents."""
    arguments = {"workspace": workspace, "terms": list(terms), "model_fingerprint": fingerprint or None}
    return rows.parse_statistics(await caller.value("document_statistics", arguments))


async def similar_document_terms(
    caller: Caller, workspace: str, terms: Sequence[str], fingerprint: str = ""
) -> Mapping[str, Sequence[str]]:
    """Return for each term the indexed terms that share its first or its second half, the most frequent first."""
    arguments = {"workspace": workspace, "terms": list(terms), "model_fingerprint": fingerprint or None}
    return rows.parse_similar_terms(await caller.value("similar_document_terms", arguments))


async def search_documents(caller: Caller, workspace: str, query: StoreQuery) -> Candidates:
    """Return both legs' best passages with both scores, BM25 by the query's own statistics."""
    arguments = rows.search_arguments(query, filter_object(query.filters)) | {"workspace": workspace}
    found = await caller.rows("search_documents", arguments)
    return rows.parse_candidates(found, query.depth, _parse_candidate, _parse_ref)


async def document_status(caller: Caller, workspace: str) -> Mapping[str, Any]:
    """Return the state of a workspace.

    It has ``documents``, ``passages``, ``fingerprint``, ``file_types`` (type → documents), ``last_received_at``, and
    ``audience`` (the registry's name).
    """
    status = rows.parse_object(await caller.value("document_status", {"workspace": workspace}))
    with rows.parse_as("status of a workspace"):
        _STATUS(status)
        rows.parse_time(status["last_received_at"])
    return status


async def note_workspace(caller: Caller, workspace: str, name: str, text: str) -> None:
    """Store a short text about a workspace under a name. The role must be ``kiwi_indexer``."""
    await caller.value("note_workspace", {"workspace": workspace, "name": name, "text": text})


async def workspace_note(caller: Caller, workspace: str, name: str) -> str:
    """Return the text that is stored about a workspace under a name; empty when there is none."""
    return rows.parse_text(await caller.value("workspace_note", {"workspace": workspace, "name": name}))


def filter_object(filters: Filters) -> dict[str, Any]:
    """Return the filters as the SQL functions over documents take them, without those that are not set."""
    texts = {"service": filters.service, "domain": filters.domain, "path": filters.path}
    file_types = {"file_type": list(filters.file_types)} if filters.file_types else {}
    return rows.filter_object(filters) | {name: text for name, text in texts.items() if text} | file_types


@rows.parse_as("passage of a document")
def _parse_candidate(row: Row) -> Candidate:
    columns = _CANDIDATE(row)
    return rows.make_candidate({**row, **columns}, _check_ref(columns), columns["kind"])


@rows.parse_as("document")
def _parse_stored(row: Row) -> StoredItem:
    columns = _STORED(row)
    return StoredItem(
        ref=_check_ref(columns),
        envelope=dsse.decode(row["envelope"], statements.PAYLOAD_TYPE),
        digest=columns["digest"],
        content_sha256=columns["content_sha256"],
        admitted_at=rows.require_time(row, "received_at"),
        policy="shared",
        passages=columns["passages"],
    )


@rows.parse_as("document")
def _parse_row(row: Row) -> DocumentRow:
    return DocumentRow(**_LISTED(row), signed_at=rows.require_time(row, "signed_at"))


def _check_ref(columns: Row) -> ItemRef:
    return ItemRef(ItemType.DOCUMENT, statements.check_path(columns["path"]))


def _parse_ref(row: Row) -> ItemRef:
    """Return the reference in a row that cannot be parsed otherwise; ``unreadable`` when that fails too."""
    try:
        return _check_ref(_NAME(row))
    except (KeyError, TypeError, ValueError, AttributeError, KiwiError):
        return ItemRef(ItemType.DOCUMENT, "unreadable")
