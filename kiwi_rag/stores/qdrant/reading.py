"""Points → Kiwi's records. What a server gives is read strictly: a part that is missing or of another type is told."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kiwi_rag.errors import InvalidItemId, KiwiError, SignatureRefused, StoreCorrupt
from kiwi_rag.model import Envelope, Passage, RefusedHit, StoredItem
from kiwi_rag.model.refs import ItemRef, ItemType, check_item_id
from kiwi_rag.registry.rows import Columns
from kiwi_rag.signing import document_statement, dsse
from kiwi_rag.stores.qdrant import layout

if TYPE_CHECKING:
    from qdrant_client import models

MAX_VERSION = 256
MAX_PASSAGES = 1_000_000
DETAIL_FIELDS = ("item_type", "item_id", "version", "digest", "content_sha256", "metadata", "key_id", "signed_at")
TURN_FIELDS = ("kind", "item", "turn", "generation", "state", "of", "total_length", "norm")
ITEM_FIELDS = (
    "item", "item_type", "item_id", "version", "digest", "content_sha256", "envelope", "policy", "admitted_at", "of"
)  # fmt: skip
PASSAGE_FIELDS = ("ordinal", "text", "context", "heading", "start_line", "end_line", "section")
_NEVER = datetime.min.replace(tzinfo=UTC)
_WHO_WROTE = "did something else than Kiwi write to this collection?"
_Payload = Mapping[str, Any]
_TURN = Columns({str: "kind item generation", int: "turn"})
_HEAD = Columns({str: "state", int: "of total_length"})
_DETAILS = Columns({str: "item digest content_sha256 key_id metadata"})
_ITEM = Columns({str: "item digest content_sha256 policy", int: "of"})
_NAME = Columns({str: "item_type item_id version"})
_PASSAGE = Columns({str: "text context section", int: "ordinal start_line end_line", list[str]: "heading"})
_FOUND = Columns({str: "item generation", int: "of length"})


@dataclass(frozen=True, slots=True)
class Head:
    """Which generation of an item counts. ``turn`` 0: nothing was ever written; no generation: it is not there.

    ``of`` counts its passages, ``total_length`` their terms, ``norm`` is the length of the sum of their vectors.
    """

    item: str
    turn: int = 0
    generation: str = ""
    state: str = ""
    of: int = 0
    total_length: int = 0
    norm: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)


class Details(NamedTuple):
    """What all candidates of one item have in common."""

    ref: ItemRef
    digest: str
    content_sha256: str
    metadata: Mapping[str, Any]
    key_id: str
    signed_at: datetime


class Found(NamedTuple):
    """A passage that a leg found. ``of`` says how many its item has, ``counts`` how often the query's terms occur."""

    id: str
    item: str
    generation: str
    of: int
    length: int
    counts: Mapping[str, int]
    score: float


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Read a payload as `what`, within a block or a decorated function.

    Raises
    ------
    StoreCorrupt
        When it lacks a part, or holds another type than it should.
    """
    try:
        yield
    except (InvalidItemId, SignatureRefused) as error:
        raise StoreCorrupt(f"Qdrant gave what is no {what}: {error.message}", hint=_WHO_WROTE) from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise StoreCorrupt(f"Qdrant gave what is no {what}: {type(error).__name__}", hint=_WHO_WROTE) from error


@readable("head of an item")
def head(payload: object, item: str) -> Head:
    """Return the head of `item` from a point that may hold more than `TURN_FIELDS`."""
    told = _mapping(payload)
    _TURN(told)
    if told["item"] != item or told["turn"] < 1 or told["kind"] not in {"head", "gone"}:
        raise ValueError("the head of another item")
    versions = told.get("versions", {})
    if not all(isinstance(digest, str) for digest in _mapping(versions).values()):
        raise TypeError("a version without a digest")
    if told["kind"] == "gone":
        return Head(item, told["turn"], versions=versions)
    _HEAD(told)
    if not told["generation"] or not 0 < told["of"] <= MAX_PASSAGES:
        raise ValueError("a head without passages")
    norm = _finite(told["norm"])
    generation, state, of = told["generation"], told["state"], told["of"]
    return Head(item, told["turn"], generation, state, of, max(0, told["total_length"]), norm, versions)


@readable("item")
def details(payload: object) -> Details:
    """Return what a head tells of its item, for its candidates."""
    told = _mapping(payload)
    _DETAILS(told)
    metadata = _mapping(json.loads(told["metadata"]))
    ref, signed_at = _head_ref(told), _moment(told["signed_at"])
    return Details(ref, told["digest"], told["content_sha256"], metadata, told["key_id"], signed_at)


def stored_items(points: Iterable[models.Record]) -> list[StoredItem]:
    """Return heads as stored items; one that cannot be read becomes an item that says so, and that never verifies."""
    return [_item_or_problem(point.payload or {}) for point in points]


@readable("item")
def stored_item(payload: object) -> StoredItem:
    """Return a head as a stored item; its envelope is decoded strictly."""
    told = _mapping(payload)
    _ITEM(told)
    ref = _head_ref(told)
    return StoredItem(
        ref=ref,
        envelope=_envelope(told["envelope"], ref.item_type),
        digest=told["digest"],
        content_sha256=told["content_sha256"],
        admitted_at=_moment(told["admitted_at"]),
        policy=told["policy"],
        passages=told["of"],
    )


def _envelope(document: object, kind: ItemType) -> Envelope:
    """Return an item's envelope, or a document's: those are of another payload type."""
    if kind is not ItemType.DOCUMENT:
        return dsse.decode(document)
    fields = _mapping(document)
    if (
        set(fields) != {"payloadType", "payload", "signatures"}
        or fields["payloadType"] != document_statement.PAYLOAD_TYPE
    ):
        raise ValueError("no envelope of a document")
    payload = dsse.from_base64(fields["payload"], "payload")
    return Envelope(document_statement.PAYLOAD_TYPE, payload, dsse.decode_signatures(fields["signatures"]))


def _item_or_problem(payload: _Payload) -> StoredItem:
    try:
        return stored_item(payload)
    except KiwiError as error:
        nothing = Envelope("", b"", ())
        digest = str(payload.get("digest"))[:64]
        return StoredItem(_ref_of(payload), nothing, digest, "", _NEVER, "", problem=error.message)


@readable("passage")
def passage(payload: object) -> Passage:
    """Return a passage from its point."""
    told = _PASSAGE(payload)
    lines = told["start_line"], told["end_line"]
    return Passage(told["ordinal"], told["text"], told["context"], tuple(told["heading"]), *lines, kind=told["section"])


@readable("passage")
def found(point: models.ScoredPoint) -> Found:
    """Return what a leg tells of a passage."""
    told = _mapping(point.payload)
    sizes = _FOUND({"length": 0, **told})
    if not 0 < sizes["of"] <= MAX_PASSAGES or sizes["length"] < 0:
        raise ValueError("no size of an item")
    named = str(point.id), told["item"], told["generation"]
    return Found(*named, sizes["of"], sizes["length"], _counts(told), _finite(point.score))


def cosine(point: models.ScoredPoint) -> float:
    """Return the cosine that a point was found with."""
    with readable("score"):
        return min(1.0, max(-1.0, _finite(point.score)))


def refused(payload: object, error: KiwiError) -> RefusedHit:
    """Return what is to be told of a point that cannot be read."""
    return RefusedHit(_ref_of(payload), "qdrant", error.code, error.message)


def _counts(payload: _Payload) -> Mapping[str, int]:
    counts = _mapping(payload.get("counts") or {})
    if not all(type(count) is int and count > 0 for count in counts.values()):
        raise ValueError("a term that occurs less than once")
    return counts


def _ref_of(payload: object) -> ItemRef:
    """Return what a point that cannot be read is about, as far as it tells."""
    try:
        told = _mapping(payload)
        item_type, _, item_id = str(told["item"]).partition(":")
        return _named({"item_type": item_type, "item_id": item_id, "version": "", **told})
    except (LookupError, TypeError, ValueError, AttributeError, KiwiError):
        return ItemRef(ItemType.KNOWLEDGE, "unreadable")


def _named(payload: _Payload) -> ItemRef:
    _NAME(payload)
    if len(payload["version"]) > MAX_VERSION:
        raise ValueError("a version is a short text")
    kind = ItemType(payload["item_type"])
    return ItemRef(kind, _checked_id(kind, payload["item_id"]), payload["version"] or None)


def _head_ref(payload: _Payload) -> ItemRef:
    ref = _named(payload)
    if layout.item_key(ref) != payload["item"]:
        raise ValueError("the head of another item")
    return ref


def _checked_id(kind: ItemType, item_id: str) -> str:
    return document_statement.check_path(item_id) if kind is ItemType.DOCUMENT else check_item_id(item_id)


def _moment(value: object) -> datetime:
    if not isinstance(value, str):
        raise TypeError("no time")
    read = datetime.fromisoformat(value)
    if read.tzinfo is None:
        raise ValueError("a time without a zone")
    return read


def _mapping(value: object) -> _Payload:
    if not isinstance(value, Mapping):
        raise TypeError("no object")
    return value


def _finite(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError("no finite number")
    return float(value)
