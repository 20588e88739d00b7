"""Rows of the registry's functions → Kiwi's records, and back.

What a registry gives is read strictly: `Columns` says which columns a row has and of which types, pydantic checks them
and converts nothing (but a whole number passes for a float, as over JSON), and a row that differs is an error of the
registry. Columns that a later registry adds are left out. pydantic costs a tenth of a second to import, so only what
talks to a registry may import this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict  # pydantic refuses typing's before Python 3.12

from kiwi_rag.errors import EmbeddingError, InvalidItemId, KiwiError, RegistryError
from kiwi_rag.lexical import term_frequencies
from kiwi_rag.model import (
    Candidate,
    CollectionStatistics,
    EmbeddingRecord,
    Envelope,
    Filters,
    ItemScores,
    Passage,
    RefusedHit,
    StoredItem,
)
from kiwi_rag.model.refs import ItemRef, ItemType, check_item_id
from kiwi_rag.registry.checkpoint import Checkpoint, head_of, is_hash
from kiwi_rag.signing import dsse
from kiwi_rag.signing.trust import RevocationNotice, SignerStatus

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

MAX_REASON = 300
MAX_PLAN = 60
MAX_VERSION = 256
MAX_NEWS = 10_000
_UNIT_TOLERANCE = 1e-3
NEVER = datetime.min.replace(tzinfo=UTC)


def vector_text(vector: Vector) -> str:
    """Return pgvector's text form; ``repr`` of a float keeps every bit of a float32."""
    return f"[{','.join(map(repr, vector.tolist()))}]"


def unit_vector_text(vector: Vector) -> str:
    """Return the text form of a passage's vector.

    Raises
    ------
    EmbeddingError
        When it is not of length 1: it would rank wrongly against all others.
    """
    length = float(vector @ vector)
    if not abs(length - 1) < _UNIT_TOLERANCE:
        raise EmbeddingError(f"the model gave a vector of squared length {length:.4g} instead of 1")
    return vector_text(vector)


def passage_object(record: EmbeddingRecord) -> dict[str, Any]:
    """Return what ``store_passages`` takes for one passage: its terms are made here, as in every tier."""
    passage = record.passage
    frequencies = term_frequencies(passage.indexed_text)
    return {
        "ordinal": passage.ordinal,
        "text": passage.text,
        "context": passage.context,
        "heading": list(passage.heading),
        "start_line": passage.start_line,
        "end_line": passage.end_line,
        "length": frequencies.total(),
        "terms": list(frequencies),
        "frequencies": list(frequencies.values()),
        "embedding": unit_vector_text(record.vector),
    }


def filter_object(filters: Filters) -> dict[str, Any]:
    """Return the filter as the SQL functions take it: only what narrows."""
    texts = {
        "item_type": filters.item_type.value if filters.item_type else "",
        "category": filters.category,
        "author": filters.author,
        "namespace": filters.namespace,
        "signer": filters.signer,
        "since": filters.since.isoformat() if filters.since else "",
    }
    narrowing: dict[str, Any] = {name: text for name, text in texts.items() if text}
    return {**narrowing, "tags": list(filters.tags)} if filters.tags else narrowing


def moment(value: object) -> datetime | None:
    """Return a point in time that came as the driver's value, or as JSON's text; None for none.

    Raises
    ------
    RegistryError
        When it is neither, or has no time zone.
    """
    if value is None:
        return None
    try:
        read = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(read, datetime) or read.tzinfo is None:
            raise ValueError("not a time with a zone")
    except ValueError as error:
        raise RegistryError(f"the registry gave {str(value)[:40]!r} for a time") from error
    return read


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Read an answer as `what`, within a block or a decorated function.

    Raises
    ------
    RegistryError
        When a row or a value lacks a part, or holds another type than it should.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, InvalidItemId) as error:
        raise RegistryError(f"the registry gave what is no {what}: {type(error).__name__}") from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(strict=True))


class Columns:
    """Which columns a row has, by type: ``Columns({int: "start_line end_line", list[str]: "heading"})``.

    Called with a row it returns these columns, or raises what `readable` makes an error of the registry.
    """

    def __init__(self, *kinds: Mapping[Any, str]) -> None:
        self._kinds = {name: kind for one in kinds for kind, names in one.items() for name in names.split()}

    def __call__(self, row: object) -> dict[str, Any]:
        found: dict[str, Any] = self._adapter.validate_python(row, strict=True)
        return found

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(TypedDict("Row", self._kinds))  # type: ignore[operator]


PASSAGE = {int: "ordinal start_line end_line", str: "text context", list[str]: "heading"}
FOUND = {str: "digest content_sha256 key_id", dict[str, Any]: "metadata"}
_NAME = {str: "item_type item_id version"}
_ITEM_NAME = Columns(_NAME)
_CANDIDATE = Columns(PASSAGE, FOUND, _NAME)
_ITEM = Columns({str: "digest content_sha256 visibility", int: "passages"}, _NAME)
_STATISTICS = Columns({int: "passages total_length items", dict[str, int]: "document_frequency"})
_STATUS = Columns({int: "items versions signers", dict[str, int]: "collections", str | None: "audience active_model"})
_VECTOR_PLAN = Columns({str: "model plan", bool: "due"})
_VERSION_STATUS = Columns({str: "version digest signer_status visibility", int: "passages"})
_LOST_SIGNER = Columns({str: "key_id principal status status_reason"})


@readable("object")
def told(answer: object) -> dict[str, Any]:
    """Return the object that a function gave."""
    return dict(_adapter(dict).validate_python(answer))


@readable("number")
def number(answer: object) -> int:
    """Return the number that a function gave."""
    return int(_adapter(int).validate_python(answer))


@readable("yes or no")
def truth(answer: object) -> bool:
    """Return the truth value that a function gave."""
    return bool(_adapter(bool).validate_python(answer))


@readable("text")
def text(answer: object) -> str:
    """Return the text that a function gave."""
    return str(_adapter(str).validate_python(answer))


def passage(found: Mapping[str, Any], kind: str = "") -> Passage:
    """Return the passage of a row with the columns of `PASSAGE`; `kind` is that of a document's section."""
    lines = found["start_line"], found["end_line"]
    return Passage(found["ordinal"], found["text"], found["context"], tuple(found["heading"]), *lines, kind)


def candidates(found: Sequence[Mapping[str, Any]]) -> tuple[list[Candidate], list[RefusedHit]]:
    """Return rows of ``search_hybrid`` as candidates, and those that are none with the reason: one spoils no other."""
    read: list[Candidate] = []
    refused: list[RefusedHit] = []
    for row in found:
        try:
            read.append(candidate(row))
        except RegistryError as error:
            refused.append(RefusedHit(_ref_of(row), "registry", error.code, error.message))
    return read, refused


@readable("plan")
def plan_of(found: Sequence[Mapping[str, Any]]) -> str:
    """Return how the registry says that it searched its vectors; "exact" where it found nothing, or had no vector."""
    plan = next((row["plan"] for row in found if row["plan"]), "exact")
    return text(plan)[:MAX_PLAN]


@readable("passage")
def candidate(row: Mapping[str, Any]) -> Candidate:
    """Return a row of ``search_hybrid`` as a candidate.

    Raises
    ------
    RegistryError
        When it is not one that a registry gives.
    """
    found = _CANDIDATE(row)
    return Candidate(
        ref=_named(found),
        digest=found["digest"],
        content_sha256=found["content_sha256"],
        passage=passage(found),
        cosine=row["cosine"],
        bm25=row["bm25"],
        metadata=found["metadata"],
        key_id=found["key_id"],
        signed_at=moment(row["signed_at"]) or NEVER,
        item=ItemScores(
            row["best_cosine"], row["first_cosine"], row["centroid_cosine"], row["best_bm25"], row["item_bm25"]
        ),
    )


@readable("item")
def stored_item(row: Mapping[str, Any]) -> StoredItem:
    """Return a row of ``get_item`` or ``list_items`` as a stored item; its envelope is decoded strictly.

    Raises
    ------
    RegistryError
        When the row is not one that a registry gives; without a time of arrival a retired key could not be judged.
    """
    received = moment(row["received_at"])
    if received is None:
        raise RegistryError("the registry gave an item without a time of arrival")
    found = _ITEM(row)
    return StoredItem(
        ref=_named(found),
        envelope=dsse.decode(row["envelope"]),
        digest=found["digest"],
        content_sha256=found["content_sha256"],
        admitted_at=received,
        policy="registry",
        passages=found["passages"],
        yanked_at=moment(row["yanked_at"]),
        yank_reason=" ".join(str(row["yank_reason"])[:MAX_REASON].split()),
        private=found["visibility"] != "public",
    )


def stored_items(found: Sequence[Mapping[str, Any]]) -> list[StoredItem]:
    """Return rows of ``list_items``; one that cannot be read becomes an item that says so, and that never verifies."""
    return [_item_or_problem(row) for row in found]


def _item_or_problem(row: Mapping[str, Any]) -> StoredItem:
    try:
        return stored_item(row)
    except KiwiError as error:
        digest = str(row.get("digest"))[:64]
        nothing = Envelope("", b"", ())
        return StoredItem(_ref_of(row), nothing, digest, "", NEVER, "registry", problem=error.message)


def envelope(row: Mapping[str, Any]) -> Envelope:
    """Return a row's envelope; one that cannot be read becomes an empty one, which the gate refuses."""
    try:
        return dsse.decode(row.get("envelope"))
    except KiwiError:
        return Envelope("", b"", ())


def _ref_of(row: Mapping[str, Any]) -> ItemRef:
    """Return what a row that cannot be read is about, as far as it tells."""
    try:
        return _named(_ITEM_NAME(row))
    except (KeyError, TypeError, ValueError, AttributeError, KiwiError):
        return ItemRef(ItemType.KNOWLEDGE, "unreadable")


def _named(found: Mapping[str, Any]) -> ItemRef:
    if len(found["version"]) > MAX_VERSION:
        raise ValueError("a version is a short text")
    return ItemRef(ItemType(found["item_type"]), check_item_id(found["item_id"]), found["version"])


@readable("count of passages and terms")
def statistics(answer: Mapping[str, Any]) -> CollectionStatistics:
    """Return the object of ``collection_statistics``."""
    return CollectionStatistics(**_STATISTICS(answer))


@readable("list of similar terms")
def vocabulary(answer: object) -> Mapping[str, list[str]]:
    """Return the object of ``similar_terms``."""
    return dict(_adapter(dict[str, list[str]]).validate_python(answer))


@readable("status of a registry")
def registry_status(answer: object) -> dict[str, Any]:
    """Return the object of ``registry_status``."""
    status = told(answer)
    _STATUS(status)
    for plan in status.setdefault("vectors", []):  # a registry of before has none
        _VECTOR_PLAN(plan)
    return status


@readable("status of a version")
def version_status(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row of ``item_status``."""
    _VERSION_STATUS(row)
    moment(row["yanked_at"])
    return row


def checkpoint(answer: object, name: str) -> Checkpoint:
    """Return the object of ``registry_news``; `name` is the registry's.

    Raises
    ------
    RegistryError
        When it is none.
    """
    if not isinstance(answer, Mapping) or not isinstance(answer.get("signers"), list):
        raise RegistryError("the registry gave no account of its audit log and its signers")
    yanked = answer.get("yanked")
    if not isinstance(yanked, list) or not all(map(is_hash, yanked)):
        raise RegistryError("the registry gave no account of what was yanked")
    notices = tuple(_notice(signer, name) for signer in answer["signers"][:MAX_NEWS])
    return Checkpoint(head_of(answer.get("audit_head")), answer.get("known_hash"), notices, tuple(yanked[:MAX_NEWS]))


@readable("signer")
def _notice(row: Mapping[str, Any], name: str) -> RevocationNotice:
    key_id, principal, status, reason = (" ".join(text[:MAX_REASON].split()) for text in _LOST_SIGNER(row).values())
    since = moment(row["status_changed_at"])
    if not is_hash(row["key_id"]) or since is None:
        raise ValueError("a signer has a key id and the time of its status")
    return RevocationNotice(key_id, principal, _lost(status), since, reason, name)


def _lost(status: str) -> SignerStatus:
    if status not in (SignerStatus.RETIRED, SignerStatus.COMPROMISED):
        raise RegistryError(f"the registry gave {status[:40]!r} for a status that takes trust away")
    return SignerStatus(status)


def bm25_inputs(weights: Mapping[str, float]) -> tuple[Sequence[str], Sequence[float]]:
    """Return terms and weights as two parallel lists, which is how SQL takes them."""
    return list(weights), list(weights.values())
