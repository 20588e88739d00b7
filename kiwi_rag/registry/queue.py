"""Typed callers for the SQL functions of the indexer: the queue, a model's collection, what is stored of an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from kiwi_rag.errors import RegistryError
from kiwi_rag.model import EmbeddingRecord, Envelope, Passage
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import Caller, Row
from kiwi_rag.signing import dsse

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

ClaimState = Literal["claimed", "busy", "later", "done"]
_CLAIM = rows.Columns({ClaimState: "state"})
_PROGRESS = rows.Columns({str: "fingerprint state", int: "passages items waiting refused"})
_INDEXED = rows.Columns({str: "digest"})
_STORED = rows.Columns(rows.PASSAGE, {str: "embedding", list[str]: "terms", list[int]: "frequencies", int: "length"})


@dataclass(frozen=True, slots=True)
class Progress:
    """A model's collection: ``active``, ``building`` or ``superseded``; items in it, waiting, and refused of these."""

    fingerprint: str
    state: str
    passages: int
    items: int
    waiting: int
    refused: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredPassage:
    """A passage as the registry has it. ``vector`` has shape ``(384,)``, ``float32``; ``terms`` → frequency."""

    passage: Passage
    terms: dict[str, int]
    length: int
    vector: Vector


@dataclass(frozen=True, slots=True)
class IndexedItem:
    """An item that has vectors: its digest, when it arrived, and what was signed."""

    digest: str
    received_at: datetime
    envelope: Envelope


async def store_passages(caller: Caller, records: Sequence[EmbeddingRecord]) -> int:
    """Store the passages of one item, at least one; return how many. The role must be ``kiwi_indexer``."""
    arguments = {
        "which_digest": records[0].admission.digest,
        "model_fingerprint": records[0].fingerprint,
        "passages": [rows.passage_object(record) for record in records],
    }
    return rows.number(await caller.value("store_passages", arguments))


async def pending_items(caller: Caller, fingerprint: str, limit: int, after: int) -> Sequence[tuple[int, Envelope]]:
    """Return what waits for the indexer, as ``(sequence, envelope)``, oldest first.

    An envelope that cannot be read comes without a payload, so that it is not in the others' way.
    """
    arguments = {"model_fingerprint": fingerprint, "max_count": limit, "after": after}
    found = await caller.rows("pending_items", arguments)
    return [(rows.number(row.get("sequence")), rows.envelope(row)) for row in found]


async def claim_item(
    caller: Caller, digest: str, fingerprint: str, *, patient: bool = False
) -> tuple[ClaimState, datetime | None]:
    """Claim an item until the session ends; return how that went, and when the item had arrived if it did.

    ``busy``: another indexer has it; ``later``: it failed and a `patient` indexer is not to try it yet; ``done``:
    there is nothing to do.

    Raises
    ------
    FingerprintMismatch
        When the registry wants no vectors of this model.
    """
    arguments = {"which_digest": digest, "model_fingerprint": fingerprint, "patient": patient}
    told = rows.told(await caller.value("claim_item", arguments))
    with rows.readable("claim"):
        return _CLAIM(told)["state"], rows.moment(told.get("received_at"))


async def set_back_item(caller: Caller, digest: str, problem: str) -> None:
    """Note why a claimed item could not be indexed; patient indexers try it again after a while, ever longer."""
    await caller.value("set_back_item", {"which_digest": digest, "what_was_wrong": problem})


async def begin_collection(caller: Caller, fingerprint: str) -> str:
    """Start a model's collection if it has none, beside the active one; return its state."""
    return rows.text(await caller.value("begin_collection", {"model_fingerprint": fingerprint}))


async def finish_collection(caller: Caller, fingerprint: str, *, insist: bool = False) -> Progress:
    """Make a model's collection the active one if nothing waits for it; return its progress either way."""
    told = rows.told(await caller.value("finish_collection", {"model_fingerprint": fingerprint, "insist": insist}))
    with rows.readable("state of a collection"):
        return Progress(**_PROGRESS(told))


async def drop_collection(caller: Caller, fingerprint: str, limit: int) -> int:
    """Remove up to `limit` passages of a model that is not the active one; fewer: that was all, and it is gone."""
    return rows.number(await caller.value("drop_collection", {"model_fingerprint": fingerprint, "max_passages": limit}))


async def index_status(caller: Caller) -> Mapping[str, Any]:
    """Return ``models``, each model's progress, and ``queue``: waiting, refused, oldest, problems. Of public items."""
    return rows.told(await caller.value("index_status", {}))


async def indexed_items(
    caller: Caller, fingerprint: str, limit: int, after: str | None = None
) -> Sequence[IndexedItem]:
    """Return up to `limit` items that have vectors of this model, in the order of their digests.

    They are drawn at random, or the first after the digest `after` where one is given (empty: from the beginning).

    Raises
    ------
    RegistryError
        When the registry gives other ones.
    """
    arguments = {"model_fingerprint": fingerprint, "max_count": limit, "after": after}
    found = [_indexed(row) for row in await caller.rows("indexed_items", arguments)]
    if any(one.digest <= (after or "") for one in found):
        raise RegistryError("the registry gave an item that it had given before")
    return found


async def read_passages(caller: Caller, digest: str, fingerprint: str) -> Sequence[StoredPassage]:
    """Return an item's passages of one model as they are stored, in order. Needs ``kiwi_indexer`` or ``kiwi_admin``."""
    found = await caller.rows("read_passages", {"which_digest": digest, "model_fingerprint": fingerprint})
    return [_stored(row) for row in found]


@rows.readable("indexed item")
def _indexed(row: Row) -> IndexedItem:
    _INDEXED(row)
    received = rows.moment(row["received_at"])
    if received is None:
        raise RegistryError("the registry gave an item without a time of arrival")
    return IndexedItem(row["digest"], received, dsse.decode(row["envelope"]))


@rows.readable("stored passage")
def _stored(row: Row) -> StoredPassage:
    import numpy as np

    found = _STORED(row)
    vector = np.array(found["embedding"].strip("[]").split(","), dtype=np.float32)
    terms = dict(zip(found["terms"], found["frequencies"], strict=False))
    return StoredPassage(rows.passage(found), terms, found["length"], vector)
