"""One function for each SQL function of the indexer: the queue, the collections of the models, stored passages."""

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
    """A model's collection: its ``state`` (``active``, ``building`` or ``superseded``) and counts.

    ``items`` are in it, ``waiting`` are not yet, and ``refused`` are those of the waiting that failed.
    """

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
    """An item that has vectors, with its time of arrival in the registry."""

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
    return rows.parse_integer(await caller.value("store_passages", arguments))


async def pending_items(caller: Caller, fingerprint: str, limit: int, after: int) -> Sequence[tuple[int, Envelope]]:
    """Return what waits for the indexer, as ``(sequence, envelope)``, oldest first.

    An envelope that cannot be decoded comes without a payload, so that it does not hold up the others.
    """
    arguments = {"model_fingerprint": fingerprint, "max_count": limit, "after": after}
    found = await caller.rows("pending_items", arguments)
    return [(rows.parse_integer(row.get("sequence")), rows.parse_envelope(row)) for row in found]


async def claim_item(
    caller: Caller, digest: str, fingerprint: str, *, patient: bool = False
) -> tuple[ClaimState, datetime | None]:
    """Claim an item until the session ends; return the claim's state, and the item's time of arrival once claimed.

    The states are those of `kiwi_rag.stores.base.Claim`. Only a `patient` indexer gets ``later``.

    Raises
    ------
    FingerprintMismatch
        When the registry has no collection of this model.
    """
    arguments = {"which_digest": digest, "model_fingerprint": fingerprint, "patient": patient}
    answer = rows.parse_object(await caller.value("claim_item", arguments))
    with rows.parse_as("claim"):
        return _CLAIM(answer)["state"], rows.parse_time(answer.get("received_at"))


async def set_back_item(caller: Caller, digest: str, problem: str) -> None:
    """Record why a claimed item could not be indexed; patient indexers retry it later, after ever longer pauses."""
    await caller.value("set_back_item", {"which_digest": digest, "what_was_wrong": problem})


async def begin_collection(caller: Caller, fingerprint: str) -> str:
    """Start a model's collection if it has none, beside the active one; return its state."""
    return rows.parse_text(await caller.value("begin_collection", {"model_fingerprint": fingerprint}))


async def finish_collection(caller: Caller, fingerprint: str, *, insist: bool = False) -> Progress:
    """Make a model's collection the active one if nothing waits for it; return its progress either way."""
    answer = rows.parse_object(
        await caller.value("finish_collection", {"model_fingerprint": fingerprint, "insist": insist})
    )
    with rows.parse_as("state of a collection"):
        return Progress(**_PROGRESS(answer))


async def drop_collection(caller: Caller, fingerprint: str, limit: int) -> int:
    """Remove up to `limit` passages of a model that is not the active one; fewer means that none are left."""
    return rows.parse_integer(
        await caller.value("drop_collection", {"model_fingerprint": fingerprint, "max_passages": limit})
    )


async def index_status(caller: Caller) -> Mapping[str, Any]:
    """Return, of public items, ``models`` (the progress of each) and ``queue`` (waiting, refused, oldest, problems)."""
    return rows.parse_object(await caller.value("index_status", {}))


async def indexed_items(
    caller: Caller, fingerprint: str, limit: int, after: str | None = None
) -> Sequence[IndexedItem]:
    """Return up to `limit` items that have vectors of this model, in the order of their digests.

    They are a random sample; with `after`, the first ones after that digest (empty: from the beginning).

    Raises
    ------
    RegistryError
        When the registry returns items again that came before: paging would never end.
    """
    arguments = {"model_fingerprint": fingerprint, "max_count": limit, "after": after}
    found = [_parse_indexed(row) for row in await caller.rows("indexed_items", arguments)]
    if any(one.digest <= (after or "") for one in found):
        raise RegistryError("the registry gave an indexed item for the second time")
    return found


async def read_passages(caller: Caller, digest: str, fingerprint: str) -> Sequence[StoredPassage]:
    """Return an item's passages of one model as they are stored, in order. Needs ``kiwi_indexer`` or ``kiwi_admin``."""
    found = await caller.rows("read_passages", {"which_digest": digest, "model_fingerprint": fingerprint})
    return [_parse_stored(row) for row in found]


@rows.parse_as("indexed item")
def _parse_indexed(row: Row) -> IndexedItem:
    _INDEXED(row)
    return IndexedItem(row["digest"], rows.require_time(row, "received_at"), dsse.decode(row["envelope"]))


@rows.parse_as("stored passage")
def _parse_stored(row: Row) -> StoredPassage:
    import numpy as np

    columns = _STORED(row)
    vector = np.array(columns["embedding"].strip("[]").split(","), dtype=np.float32)
    terms = dict(zip(columns["terms"], columns["frequencies"], strict=False))
    return StoredPassage(rows.parse_passage(columns), terms, columns["length"], vector)
