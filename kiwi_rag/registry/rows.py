"""The registry's SQL functions: the records that their rows and values become, and the arguments that they take.

A registry's answer is parsed strictly. `Columns` says which columns a row has and of which types. pydantic checks them
without conversion, except that a whole number is accepted for a float, as JSON writes it, and for the types below that
convert. Any other row is a `RegistryError`. Columns that a later registry adds are ignored. Importing pydantic takes a
tenth of a second, so only modules that call a registry may import this one.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, PlainValidator, StringConstraints, TypeAdapter
from typing_extensions import TypedDict  # pydantic refuses typing's before Python 3.12

from kiwi_rag.errors import InvalidItemId, KiwiError, RegistryError
from kiwi_rag.model.items import EmbeddingRecord, Envelope, Passage, StoredItem, Vector
from kiwi_rag.model.refs import ItemRef, ItemType, check_item_id
from kiwi_rag.model.search import Candidate, Candidates, CollectionStatistics, ItemScores, RefusedHit
from kiwi_rag.signing import dsse
from kiwi_rag.signing.statement import check_path
from kiwi_rag.signing.trust import RevocationNotice, Signer, SignerStatus
from kiwi_rag.symbols import passage_terms
from kiwi_rag.validation.audit import AuditHead

_T = TypeVar("_T")
Row = Mapping[str, Any]
ClaimState = Literal["claimed", "busy", "later", "done"]
"""The states of `kiwi_rag.stores.postgres.RegistryClaim`."""
MAX_REASON = 300
MAX_PLAN = 60
MAX_VERSION = 256
MAX_CHECKPOINT = 10_000
"""Up to so many notices, and as many yanked digests, of one checkpoint are read."""
NO_ENVELOPE = Envelope("", b"", ())
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The registry's present state, as it reports it: the head of its audit log, lost keys, what was yanked.

    ``known_hash`` is the hash of its record with the number that the client had pinned, None when it has none;
    ``yanked`` are digests of what was yanked after that record.
    """

    head: AuditHead
    known_hash: str | None
    notices: tuple[RevocationNotice, ...] = ()
    yanked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a claim: its state, and when it was granted the item's files and when it arrived."""

    state: ClaimState
    received_at: datetime | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


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
    """A passage as the registry has it. ``vector`` has shape ``(dimension,)``, ``float32``; ``terms`` → frequency."""

    passage: Passage
    terms: dict[str, int]
    length: int
    vector: Vector


@dataclass(frozen=True, slots=True)
class IndexedItem:
    """An item that has vectors, with its time of arrival in the registry and its files."""

    digest: str
    received_at: datetime
    envelope: Envelope
    files: Mapping[str, bytes] = field(default_factory=dict)


class Columns:
    """Which columns a row has, by type: ``Columns({int: "start_line end_line", list[str]: "heading"})``.

    Called with a row it returns them, or raises what `parse_as` turns into a `RegistryError`.
    """

    def __init__(self, *columns: Mapping[Any, str]) -> None:
        self._types = {name: kind for one in columns for kind, names in one.items() for name in names.split()}

    def __call__(self, row: object) -> dict[str, Any]:
        parsed: dict[str, Any] = self._adapter.validate_python(row, strict=True)
        return parsed

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(TypedDict("Row", self._types))  # type: ignore[operator]


@contextmanager
def parse_as(what: str) -> Iterator[None]:
    """Name what is parsed within the block, for the error message.

    Raises
    ------
    RegistryError
        When a row or a value lacks a part, or a part has another type than it should.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, InvalidItemId) as error:
        raise RegistryError(f"the registry gave an invalid {what}: {type(error).__name__}") from error


def _decode_if_valid(document: object) -> Envelope:
    try:
        return dsse.decode(document)
    except KiwiError:
        return NO_ENVELOPE


# A time is a `datetime` of psycopg, and text of Supabase's API and within JSON.
TIME = Annotated[AwareDatetime, BeforeValidator(lambda at: datetime.fromisoformat(at) if isinstance(at, str) else at)]
_HASH = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
_LINE = Annotated[str, AfterValidator(lambda text: " ".join(text[:MAX_REASON].split()))]
_HEADING = Annotated[list[str], AfterValidator(tuple)]
ENVELOPE = Annotated[Envelope, PlainValidator(dsse.decode)]
# One that cannot be decoded becomes an empty one, which the gate refuses, so that it does not hold up the others.
_ANY_ENVELOPE = Annotated[Envelope, PlainValidator(_decode_if_valid)]
FILES = Annotated[
    dict[str, Annotated[bytes, BeforeValidator(partial(base64.b64decode, validate=True))]],
    BeforeValidator(lambda files: files or {}),
]

PASSAGE = {int: "ordinal start_line end_line", str: "text context file kind", _HEADING: "heading"}
_REF = {str: "item_type item_id version"}
_ITEM_REF = Columns(_REF)
_ITEM_SCORES = "best_cosine first_cosine centroid_cosine best_bm25 item_bm25"
# Null where a registry gave none: the search checks that scores are possible.
_SCORES = {float | None: f"cosine bm25 {_ITEM_SCORES}"}
_SIGNED = {str: "digest content_sha256 key_id", dict[str, Any]: "metadata", TIME: "signed_at"}
_CANDIDATE = Columns(PASSAGE, _SIGNED, _REF, _SCORES)
_ARRIVAL = {TIME: "received_at", TIME | None: "yanked_at"}
_ITEM = Columns(
    _REF,
    {ENVELOPE: "envelope", _LINE: "yank_reason", str: "digest content_sha256 visibility", int: "passages"},
    _ARRIVAL | {NotRequired[FILES]: "files"},
)
_STATUS = Columns({int: "items versions signers", dict[str, int]: "collections", str | None: "audience active_model"})
_VECTOR_PLAN = Columns({str: "model plan", bool: "due"})
_COLLECTION_STATUS = Columns(
    {int: "documents passages", str | None: "fingerprint audience", dict[str, int]: "file_types"},
    {TIME | None: "last_received_at"},
)
_SIGNER = Columns(
    {str: "principal public_key status", list[str]: "item_patterns item_types"},
    {TIME | None: "valid_after valid_before"},
)
_CLAIM = Columns({ClaimState: "state"})
_CLAIMED = Columns({ClaimState: "state", TIME: "received_at", FILES: "files"})
_PENDING = Columns({int: "sequence", _ANY_ENVELOPE: "envelope"})
_STORED_PASSAGE = Columns(PASSAGE, {str: "embedding", list[str]: "terms", list[int]: "frequencies", int: "length"})
_CHECKPOINT = Columns({str: "audit_head", str | None: "known_hash", list[Any]: "signers", list[_HASH]: "yanked"})
_LOST_KEY = Columns({_HASH: "key_id", _LINE: "principal status status_reason", TIME: "status_changed_at"})


def _strict(kind: type[_T]) -> Callable[[object], _T]:
    return TypeAdapter(kind, config={"strict": True}).validate_python


def _record(kind: Callable[..., _T], columns: Mapping[Any, str]) -> Callable[[object], _T]:
    """Return the parser of rows whose columns are the fields of a record."""
    read = Columns(columns)
    return lambda row: kind(**read(row))


parse_statistics = _record(
    CollectionStatistics, {int: "passages total_length items", dict[str, int]: "document_frequency"}
)
parse_progress = _record(Progress, {str: "fingerprint state", int: "passages items waiting refused"})
parse_indexed = _record(IndexedItem, {str: "digest", TIME: "received_at", ENVELOPE: "envelope", FILES: "files"})
INTEGER, BOOLEAN, TEXT = _strict(int), _strict(bool), _strict(str)
OBJECT, SIMILAR_TERMS = _strict(dict[str, Any]), _strict(dict[str, list[str]])
VERSION_STATUS = Columns(
    {str: "version digest signer_status visibility content_sha256 key_id", int: "passages"}, _ARRIVAL
)
RECEIPT = Columns(
    {str: "digest audit_head visibility", int: "sequence", bool: "already_published made_public"}, _ARRIVAL
)
AUDIT_RECORD = Columns({int: "seq", str: "at event ref digest key_id details previous_hash hash"})


def make_record(kind: Callable[..., _T], columns: Row, **others: Any) -> _T:
    """Return a record of a class whose fields are columns of the same names, or given as `others`."""
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    return kind(**{name: columns[name] for name in names if name in columns} | others)


def _parse_ref(columns: Row) -> ItemRef:
    if columns["item_type"] == ItemType.DOCUMENT:
        return ItemRef(ItemType.DOCUMENT, check_path(columns["item_id"]))
    if len(columns["version"]) > MAX_VERSION:
        raise ValueError(f"a version has at most {MAX_VERSION} characters")
    return ItemRef(ItemType(columns["item_type"]), check_item_id(columns["item_id"]), columns["version"])


def parse_ref(row: Row) -> ItemRef:
    """Return the reference in a row that cannot be parsed; ``unreadable`` when that fails too."""
    try:
        return _parse_ref(_ITEM_REF(row))
    except (KeyError, TypeError, ValueError, AttributeError, KiwiError):
        return ItemRef(ItemType.KNOWLEDGE, "unreadable")


def _parse_candidate(row: Row) -> Candidate:
    with parse_as("passage"):
        columns = _CANDIDATE(row)
        scores = ItemScores(*(columns[name] for name in _ITEM_SCORES.split()))
        return make_record(
            Candidate, columns, ref=_parse_ref(columns), passage=make_record(Passage, columns), item=scores
        )


def parse_candidates(rows: Sequence[Row], depth: int) -> Candidates:
    """Return the rows of ``search_hybrid``. A row that cannot be parsed is listed as refused."""
    items: list[Candidate] = []
    refused: list[RefusedHit] = []
    for row in rows[: 2 * depth]:  # each of the two legs gives at most `depth`
        try:
            items.append(_parse_candidate(row))
        except RegistryError as error:
            refused.append(RefusedHit(parse_ref(row), "registry", error.code, error.message))
    # Every row names the plan. It is null for a query without a vector, which needs no index: "exact".
    with parse_as("plan"):
        plan = TEXT(next((row["plan"] for row in rows[:1] if row["plan"]), "exact"))
    return Candidates(tuple(items), plan[:MAX_PLAN], tuple(refused))


def parse_item(row: Row) -> StoredItem:
    """Return a row of ``get_item`` or ``list_items`` as a stored item; its envelope is decoded strictly."""
    with parse_as("item"):
        columns = _ITEM(row)
        ref = _parse_ref(columns)
        private = columns["visibility"] != "public" and ref.item_type is not ItemType.DOCUMENT
        arrival = columns["received_at"]
        return make_record(StoredItem, columns, ref=ref, admitted_at=arrival, policy=_policy(ref), private=private)


def parse_item_or_problem(row: Row) -> StoredItem:
    """Return a row of a list; one that cannot be parsed becomes an item with a ``problem``, which never verifies."""
    try:
        return parse_item(row)
    except KiwiError as error:
        ref = parse_ref(row)
        digest = str(row.get("digest"))[:64]
        return StoredItem(ref, NO_ENVELOPE, digest, "", NEVER, _policy(ref), problem=error.message)


def _policy(ref: ItemRef) -> str:
    return "shared" if ref.item_type is ItemType.DOCUMENT else "registry"


def parse_registry_status(answer: object) -> dict[str, Any]:
    """Return the object of ``registry_status``."""
    _STATUS(answer)
    status = {"vectors": [], **OBJECT(answer)}  # registries of earlier versions do not have it
    for plan in status["vectors"]:
        _VECTOR_PLAN(plan)
    return status


def parse_collection_status(answer: object) -> dict[str, Any]:
    """Return the object of ``collection_status``."""
    _COLLECTION_STATUS(answer)
    return OBJECT(answer)


def parse_claim(answer: object) -> Claimed:
    """Return the object of ``claim_item``."""
    claim = _CLAIM(answer)
    return Claimed(**_CLAIMED(answer) if claim["state"] == "claimed" else claim)


def parse_pending(row: Row) -> tuple[int, Envelope]:
    """Return a row of ``pending_items``."""
    columns = _PENDING(row)
    return columns["sequence"], columns["envelope"]


def parse_stored(row: Row) -> StoredPassage:
    """Return a row of ``read_passages``."""
    import numpy as np

    columns = _STORED_PASSAGE(row)
    vector = np.array(columns["embedding"].strip("[]").split(","), dtype=np.float32)
    terms = dict(zip(columns["terms"], columns["frequencies"], strict=False))
    return StoredPassage(make_record(Passage, columns), terms, columns["length"], vector)


def parse_signer(row: Row) -> Signer:
    """Return a row of ``list_signers``."""
    columns = _SIGNER(row)
    types = tuple(map(ItemType, columns["item_types"]))
    key, status = bytes.fromhex(columns["public_key"]), SignerStatus(columns["status"])
    patterns = tuple(columns["item_patterns"])
    return make_record(Signer, columns, public_key=key, patterns=patterns, types=types, status=status)


def parse_checkpoint(name: str, answer: object) -> Checkpoint:
    """Return the object of ``registry_checkpoint``; `name` is the registry's."""
    columns = _CHECKPOINT(answer)
    notices = tuple(_parse_notice(_LOST_KEY(signer), name) for signer in columns["signers"][:MAX_CHECKPOINT])
    yanked = tuple(columns["yanked"][:MAX_CHECKPOINT])
    return Checkpoint(parse_head(columns["audit_head"]), columns["known_hash"], notices, yanked)


def parse_head(text: object) -> AuditHead:
    """Return an audit head from its text, ``seq:hash``; ``0:`` for an empty log.

    Raises
    ------
    RegistryError
        When the text is not one.
    """
    found = re.fullmatch("0:|([1-9][0-9]{0,17}):([0-9a-f]{64})", str(text))  # 18 digits fit the registry's bigint
    if found is None:
        raise RegistryError(f"the registry gave {str(text)[:40]!r} for the head of its audit log")
    return AuditHead(int(found[1]), found[2]) if found[1] else AuditHead()


def _parse_notice(columns: Row, name: str) -> RevocationNotice:
    key_id, principal, status, reason, since = columns.values()
    # A registry may only take trust away. It must not be able to give it.
    if status not in (SignerStatus.RETIRED, SignerStatus.COMPROMISED):
        raise RegistryError(f"the registry gave {status[:40]!r} for the status of a key that lost trust")
    return RevocationNotice(key_id, principal, SignerStatus(status), since, reason, name)


def vector_text(vector: Vector) -> str:
    """Return pgvector's text form; ``repr`` of a float keeps every bit of a float32."""
    return f"[{','.join(map(repr, vector.tolist()))}]"


def passage_object(record: EmbeddingRecord) -> dict[str, Any]:
    """Return what ``store_passages`` takes for one passage, with the terms that every tier indexes."""
    frequencies, length = passage_terms(record.admission.ref, record.passage)
    return asdict(record.passage) | {
        "length": length,
        "terms": list(frequencies),
        "frequencies": list(frequencies.values()),
        "embedding": vector_text(record.vector),
    }
