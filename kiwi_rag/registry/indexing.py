"""Typed callers for the SQL functions of the indexer: the queue, a model's collection, what is stored of an item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from kiwi_rag.errors import RegistryError
from kiwi_rag.model import Envelope, Passage
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import Caller, Row
from kiwi_rag.signing import dsse

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

ClaimState = Literal["claimed", "busy", "later", "done"]


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
    told = dict(await caller.value("claim_item", arguments))
    return told["state"], rows.moment(told.get("received_at"))


async def set_back_item(caller: Caller, digest: str, problem: str) -> None:
    """Note why a claimed item could not be indexed; patient indexers try it again after a while, ever longer."""
    await caller.value("set_back_item", {"which_digest": digest, "what_was_wrong": problem})


async def begin_collection(caller: Caller, fingerprint: str) -> str:
    """Start a model's collection if it has none, beside the active one; return its state."""
    return str(await caller.value("begin_collection", {"model_fingerprint": fingerprint}))


async def finish_collection(caller: Caller, fingerprint: str, *, insist: bool = False) -> Progress:
    """Make a model's collection the active one if nothing waits for it; return its progress either way."""
    told = dict(await caller.value("finish_collection", {"model_fingerprint": fingerprint, "insist": insist}))
    return Progress(**{name: told[name] for name in Progress.__slots__})


async def drop_collection(caller: Caller, fingerprint: str) -> int:
    """Remove the vectors of a model that is not the active one; return how many passages that were."""
    return int(await caller.value("drop_collection", {"model_fingerprint": fingerprint}))


async def indexed_items(caller: Caller, fingerprint: str, limit: int | None) -> Sequence[IndexedItem]:
    """Return items that have vectors of this model, drawn at random, all of them when `limit` is None."""
    found = await caller.rows("indexed_items", {"model_fingerprint": fingerprint, "max_count": limit})
    return [_indexed(row) for row in found]


async def read_passages(caller: Caller, digest: str, fingerprint: str) -> Sequence[StoredPassage]:
    """Return an item's passages of one model as they are stored, in order. Needs ``kiwi_indexer`` or ``kiwi_admin``."""
    found = await caller.rows("read_passages", {"which_digest": digest, "model_fingerprint": fingerprint})
    return [_stored(row) for row in found]


def _indexed(row: Row) -> IndexedItem:
    received = rows.moment(row["received_at"])
    if received is None:
        raise RegistryError("the registry gave an item without a time of arrival")
    return IndexedItem(row["digest"], received, dsse.decode(row["envelope"]))


def _stored(row: Row) -> StoredPassage:
    import numpy as np

    passage = Passage(
        row["ordinal"], row["text"], row["context"], tuple(row["heading"]), row["start_line"], row["end_line"]
    )
    vector = np.array(row["embedding"].strip("[]").split(","), dtype=np.float32)
    return StoredPassage(passage, dict(zip(row["terms"], row["frequencies"], strict=False)), row["length"], vector)
