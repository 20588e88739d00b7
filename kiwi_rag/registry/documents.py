"""Typed callers for the SQL functions over documents, as `kiwi_rag.registry.client` has them for items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import KiwiError, RegistryError
from kiwi_rag.lexical import bm25_weights
from kiwi_rag.model import (
    Candidate,
    Candidates,
    CollectionStatistics,
    EmbeddingRecord,
    Envelope,
    Filters,
    ItemScores,
    RefusedHit,
    StoredItem,
    StoreQuery,
)
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import refusal
from kiwi_rag.signing import document_statement as statements
from kiwi_rag.signing import dsse

if TYPE_CHECKING:
    from datetime import datetime

    from kiwi_rag.registry.calls import Caller, Row

_SCORES = "cosine bm25 best_cosine first_cosine centroid_cosine best_bm25 item_bm25"
_CANDIDATE = rows.Columns(rows.PASSAGE, rows.FOUND, {str: "path kind", float: _SCORES})
_STORED = rows.Columns({str: "path digest content_sha256", int: "passages"})
_LISTED = rows.Columns({str: "path digest content_sha256 rules key_id", int: "passages"})
_STATUS = rows.Columns({int: "documents passages", str | None: "fingerprint audience", dict[str, int]: "file_types"})
_NAME = rows.Columns({str: "path"})
_RECEIPT = rows.Columns({str: "digest", bool: "known"})


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document as ``list_documents`` gives it, without its envelope.

    ``content_sha256`` is of its file, ``rules`` the name of those that it was judged by, ``key_id`` who signed it.
    """

    path: str
    digest: str
    content_sha256: str
    rules: str
    key_id: str
    passages: int
    signed_at: datetime


async def put_document(caller: Caller, records: Sequence[EmbeddingRecord], rules: str = "") -> Mapping[str, Any]:
    """Hand in a signed document with all its passages, at least one; return the answer: a receipt, or a refusal.

    `receipt` tells them apart; raised inside the session, a refusal would take its own audit record with it. The role
    must be ``kiwi_indexer``. `rules` names those that the file was read and judged by.
    """
    arguments = {
        "envelope": dsse.encode(records[0].admission.envelope),
        "model_fingerprint": records[0].fingerprint,
        "passages": [rows.passage_object(record) | {"kind": record.passage.kind} for record in records],
        "rules": rules,
    }
    return rows.told(await caller.value("put_document", arguments))


def receipt(answer: Mapping[str, Any]) -> bool:
    """Return whether the very same statement was there already.

    Raises
    ------
    RegistryRefused
        When the registry's own checks said no; ``KW018`` where what is there was signed later.
    FingerprintMismatch
        When the workspace holds vectors of another model.
    RegistryError
        When the answer is neither.
    """
    if "code" in answer:
        raise refusal(str(answer["code"]), str(answer.get("message") or ""), str(answer.get("hint") or ""))
    with rows.readable("receipt"):
        return bool(_RECEIPT(answer)["known"])


async def delete_document(caller: Caller, workspace: str, path: str) -> bool:
    """Remove a document; return whether it was there. The role must be ``kiwi_indexer`` or ``kiwi_admin``."""
    return rows.truth(await caller.value("delete_document", {"workspace": workspace, "path": path}))


async def clear_documents(caller: Caller, workspace: str, limit: int) -> int:
    """Remove up to `limit` documents; fewer: that was all, and the workspace may begin anew with another model."""
    return rows.number(await caller.value("clear_documents", {"workspace": workspace, "max_documents": limit}))


async def note_rules(caller: Caller, workspace: str, path: str, content_sha256: str, rules: str) -> bool:
    """Note that the document of a file, as that is, was judged by other rules; return whether it is there."""
    named = {"workspace": workspace, "path": path, "content_sha256": content_sha256, "rules": rules}
    return rows.truth(await caller.value("note_rules", named))


async def get_document(caller: Caller, workspace: str, path: str) -> StoredItem | None:
    """Return a document; None for one that is not there, or whose signer's key was compromised."""
    found = await caller.rows("get_document", {"workspace": workspace, "path": path})
    return _stored(found[0]) if found else None


async def list_documents(caller: Caller, workspace: str, filters: Filters) -> Sequence[StoredItem]:
    """Return every document that the filters let through, by path; one that cannot be read says so."""
    arguments = {"workspace": workspace, "filter": filter_object(filters), "with_envelopes": True}
    return [_stored_or_problem(row) for row in await caller.rows("list_documents", arguments)]


async def list_document_rows(caller: Caller, workspace: str) -> Sequence[DocumentRow]:
    """Return what to compare a workspace's files with, by path: a hundred thousand take a second or two."""
    return [_row(row) for row in await caller.rows("list_documents", {"workspace": workspace})]


async def document_statistics(
    caller: Caller, workspace: str, terms: Sequence[str], fingerprint: str = ""
) -> CollectionStatistics:
    """Return what BM25 needs to know of a workspace's documents."""
    arguments = {"workspace": workspace, "terms": list(terms), "model_fingerprint": fingerprint or None}
    return rows.statistics(await caller.value("document_statistics", arguments))


async def similar_document_terms(
    caller: Caller, workspace: str, terms: Sequence[str], fingerprint: str = ""
) -> Mapping[str, Sequence[str]]:
    """Return for each term those of the vocabulary that share a half with it, the most frequent first."""
    arguments = {"workspace": workspace, "terms": list(terms), "model_fingerprint": fingerprint or None}
    return rows.vocabulary(await caller.value("similar_document_terms", arguments))


async def search_documents(caller: Caller, workspace: str, query: StoreQuery) -> Candidates:
    """Return both legs' best passages with both scores, BM25 by the query's own statistics."""
    terms, weights = rows.bm25_inputs(bm25_weights(query.statistics, query.terms))
    arguments = {
        "workspace": workspace,
        "query_embedding": rows.vector_text(query.vector),
        "terms": terms,
        "weights": weights,
        "average_length": query.statistics.average_length,
        "average_item_length": query.statistics.average_item_length,
        "depth": query.depth,
        "filter": filter_object(query.filters),
        "model_fingerprint": query.fingerprint,
    }
    found = (await caller.rows("search_documents", arguments))[: 2 * query.depth]  # two legs, and never more
    read: list[Candidate] = []
    refused: list[RefusedHit] = []
    for row in found:
        try:
            read.append(_candidate(row))
        except RegistryError as error:
            refused.append(RefusedHit(_ref_of(row), "registry", error.code, error.message))
    return Candidates(tuple(read), rows.plan_of(found[:1]), tuple(refused))


async def document_status(caller: Caller, workspace: str) -> Mapping[str, Any]:
    """Return what a workspace holds.

    ``documents``, ``passages``, ``fingerprint``, ``file_types`` (type → documents), ``last_received_at``, and
    ``audience``, the registry's name.
    """
    told = rows.told(await caller.value("document_status", {"workspace": workspace}))
    with rows.readable("status of a workspace"):
        _STATUS(told)
        rows.moment(told["last_received_at"])
    return told


async def note_workspace(caller: Caller, workspace: str, name: str, text: str) -> None:
    """Keep a short text about a workspace under a name. The role must be ``kiwi_indexer``."""
    await caller.value("note_workspace", {"workspace": workspace, "name": name, "text": text})


async def workspace_note(caller: Caller, workspace: str, name: str) -> str:
    """Return the text that was kept about a workspace under a name, an empty one where none was."""
    return rows.text(await caller.value("workspace_note", {"workspace": workspace, "name": name}))


def filter_object(filters: Filters) -> dict[str, Any]:
    """Return the filter as the SQL functions over documents take it: only what narrows."""
    own = {"service": filters.service, "domain": filters.domain, "path": filters.path}
    own_types = {"file_type": list(filters.file_types)} if filters.file_types else {}
    return rows.filter_object(filters) | {name: text for name, text in own.items() if text} | own_types


@rows.readable("passage of a document")
def _candidate(row: Row) -> Candidate:
    found = _CANDIDATE(row)
    cosine, words, *whole = (found[name] for name in _SCORES.split())
    return Candidate(
        ref=_named(found),
        digest=found["digest"],
        content_sha256=found["content_sha256"],
        passage=rows.passage(found, found["kind"]),
        cosine=cosine,
        bm25=words,
        metadata=found["metadata"],
        key_id=found["key_id"],
        signed_at=_moment(row, "signed_at"),
        item=ItemScores(*whole),
    )


@rows.readable("document")
def _stored(row: Row) -> StoredItem:
    found = _STORED(row)
    return StoredItem(
        **found,
        ref=_named(found),
        envelope=_envelope(row["envelope"]),
        admitted_at=_moment(row, "received_at"),
        policy="shared",
    )


def _stored_or_problem(row: Row) -> StoredItem:
    try:
        return _stored(row)
    except KiwiError as error:
        nothing, never = Envelope("", b"", ()), rows.NEVER
        return StoredItem(_ref_of(row), nothing, "", "", never, "shared", problem=error.message)


@rows.readable("document")
def _row(row: Row) -> DocumentRow:
    return DocumentRow(**_LISTED(row), signed_at=_moment(row, "signed_at"))


def _envelope(document: object) -> Envelope:
    return dsse.decode(document, statements.PAYLOAD_TYPE)


def _moment(row: Row, column: str) -> datetime:
    moment = rows.moment(row[column])
    if moment is None:
        raise RegistryError("the registry gave a document without a time")
    return moment


def _named(row: Row) -> ItemRef:
    return ItemRef(ItemType.DOCUMENT, statements.check_path(row["path"]))


def _ref_of(row: Row) -> ItemRef:
    """Return what a row that cannot be read is about, as far as it tells."""
    try:
        return _named(_NAME(row))
    except (KeyError, TypeError, ValueError, AttributeError, KiwiError):
        return ItemRef(ItemType.DOCUMENT, "unreadable")
