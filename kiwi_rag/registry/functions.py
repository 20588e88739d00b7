"""One typed caller for each of the registry's SQL functions that readers and publishers use.

Every one takes a `Caller`, which binds the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kiwi_rag.lexical import bm25_weights
from kiwi_rag.model import Candidates, CollectionStatistics, Envelope, Filters, StoredItem, StoreQuery, Visibility
from kiwi_rag.refs import ItemRef
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import Caller, Row
from kiwi_rag.registry.driver_errors import refusal
from kiwi_rag.registry.news import News
from kiwi_rag.signing import dsse

_RECEIPT = rows.Columns({str: "digest audit_head visibility", int: "sequence", bool: "known opened"})
_VERSION = rows.Columns({str: "version digest content_sha256 key_id"})


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of an item: ``content_sha256`` hex, ``yanked`` whether it was taken back."""

    ref: ItemRef
    digest: str
    content_sha256: str
    key_id: str
    yanked: bool


async def publish_item(caller: Caller, envelope: Envelope, visibility: Visibility | None = None) -> Mapping[str, Any]:
    """Hand in an envelope; return the answer: a receipt, or a refusal. `receipt` tells them apart.

    Without a `visibility` a new item is public, and one that is there stays what it is.

    A refusal is an answer, and not raised here: raised inside the session, it would take the transaction with it, and
    with that its own record in the registry's audit log.
    """
    arguments: dict[str, Any] = {"envelope": dsse.encode(envelope)}
    if visibility:
        arguments["visibility"] = visibility
    return rows.told(await caller.value("publish_item", arguments))


def receipt(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the receipt: ``sequence``, ``digest``, ``audit_head``, ``known``, ``opened``, ``visibility``
    and two times, ``received_at`` and ``yanked_at``.

    Raises
    ------
    RegistryRefused
        When the registry's own checks said no.
    RegistryError
        When the answer is neither.
    """
    if "code" in answer:
        raise refusal(str(answer["code"]), str(answer.get("message") or ""), str(answer.get("hint") or ""))
    with rows.readable("receipt"):
        _RECEIPT(answer)
    return answer


async def collection_statistics(caller: Caller, terms: Sequence[str], fingerprint: str = "") -> CollectionStatistics:
    """Return the statistics of a model's collection, of the largest one when none is named."""
    arguments = {"terms": list(terms), "model_fingerprint": fingerprint or None}
    return rows.statistics(await caller.value("collection_statistics", arguments))


async def similar_terms(caller: Caller, terms: Sequence[str], fingerprint: str = "") -> Mapping[str, Sequence[str]]:
    """Return for each term those of the vocabulary that share a half with it, the most frequent first."""
    arguments = {"terms": list(terms), "model_fingerprint": fingerprint or None}
    return rows.vocabulary(await caller.value("similar_terms", arguments))


async def search_hybrid(caller: Caller, query: StoreQuery) -> Candidates:
    """Return both legs' best passages with both scores, BM25 by the query's own statistics."""
    terms, weights = rows.bm25_inputs(bm25_weights(query.statistics, query.terms))
    arguments = {
        "query_embedding": rows.vector_text(query.vector),
        "terms": terms,
        "weights": weights,
        "average_length": query.statistics.average_length,
        "average_item_length": query.statistics.average_item_length,
        "depth": query.depth,
        "filter": rows.filter_object(query.filters),
        "model_fingerprint": query.fingerprint,
    }
    found = await caller.rows("search_hybrid", arguments)
    read, refused = rows.candidates(found[: 2 * query.depth])  # two legs, and never more
    return Candidates(tuple(read), rows.plan_of(found[:1]), tuple(refused))


async def get_item(caller: Caller, ref: ItemRef, *, yanked_too: bool = False) -> StoredItem | None:
    """Return one version, the newest that was not yanked when `ref` names none."""
    found = await caller.rows("get_item", _named(ref) | {"version": ref.version})
    found = [row for row in found if yanked_too or row.get("yanked_at") is None]
    return rows.stored_item(found[0]) if found else None


async def list_items(caller: Caller, filters: Filters) -> Sequence[StoredItem]:
    """Return the newest version of every item that the filters let through, by type and id."""
    found = await caller.rows("list_items", {"filter": rows.filter_object(filters)})
    return rows.stored_items(found)


async def list_versions(caller: Caller, ref: ItemRef) -> Sequence[VersionRow]:
    """Return every version of an item that was ever taken, oldest first."""
    return [_version(ref, row) for row in await caller.rows("list_versions", _named(ref))]


async def item_status(caller: Caller, ref: ItemRef) -> Sequence[Mapping[str, Any]]:
    """Return what became of each version: version, signer_status, yanked_at, passages, searchable."""
    return [rows.version_status(row) for row in await caller.rows("item_status", _named(ref))]


async def registry_status(caller: Caller) -> Mapping[str, Any]:
    """Return counts, versions and health."""
    return rows.registry_status(await caller.value("registry_status", {}))


async def registry_news(caller: Caller, known_seq: int, signers_since: int, name: str) -> News:
    """Return the registry's head, its hash at record `known_seq`, and who lost trust after record `signers_since`.

    `name` is the registry's, for the notices.
    """
    told = await caller.value("registry_news", {"known_seq": known_seq, "signers_since": signers_since})
    return rows.news(told, name)


@rows.readable("version")
def _version(ref: ItemRef, row: Row) -> VersionRow:
    found = _VERSION(row)
    named = ItemRef(ref.item_type, ref.item_id, found.pop("version"))
    return VersionRow(named, **found, yanked=rows.moment(row["yanked_at"]) is not None)


def _named(ref: ItemRef) -> dict[str, Any]:
    return {"item_id": ref.item_id, "item_type": ref.item_type.value}
