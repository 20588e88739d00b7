"""Rows and values of the registry's SQL functions → Kiwi's records, and the arguments that those functions take.

A registry's answer is parsed strictly. `Columns` says which columns a row has and of which types. pydantic checks them
without conversion, except that a whole number is accepted for a float, as JSON writes it. Any other row is a
`RegistryError`. Columns that a later registry adds are ignored. Importing pydantic takes a tenth of a second, so only
modules that call a registry may import this one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict  # pydantic refuses typing's before Python 3.12

from kiwi_rag.errors import EmbeddingError, InvalidItemId, KiwiError, RegistryError
from kiwi_rag.lexical import bm25_weights, term_frequencies
from kiwi_rag.model import (
    Candidate,
    Candidates,
    CollectionStatistics,
    EmbeddingRecord,
    Envelope,
    Filters,
    ItemScores,
    Passage,
    RefusedHit,
    StoredItem,
    StoreQuery,
)
from kiwi_rag.model.refs import ItemRef, ItemType, check_item_id
from kiwi_rag.registry.checkpoint import Checkpoint, is_hash, parse_head
from kiwi_rag.registry.records import Claimed, ClaimState, EnrolledSigner, IndexedItem, Progress, StoredPassage
from kiwi_rag.signing import dsse
from kiwi_rag.signing.statement import check_path
from kiwi_rag.signing.trust import RevocationNotice, Signer, SignerStatus

if TYPE_CHECKING:
    from kiwi_rag.model import Vector
    from kiwi_rag.registry.calls import Row

MAX_REASON = 300
MAX_PLAN = 60
MAX_VERSION = 256
MAX_CHECKPOINT = 10_000
"""Up to so many notices, and as many yanked digests, of one checkpoint are read."""
NO_ENVELOPE = Envelope("", b"", ())
_NEVER = datetime.min.replace(tzinfo=UTC)
_UNIT_TOLERANCE = 1e-3


class Columns:
    """Which columns a row has, by type: ``Columns({int: "start_line end_line", list[str]: "heading"})``.

    Called with a row it returns these columns, or raises what `parse_as` turns into a `RegistryError`.
    """

    def __init__(self, *columns: Mapping[Any, str]) -> None:
        self._types = {name: kind for one in columns for kind, names in one.items() for name in names.split()}

    def __call__(self, row: object) -> dict[str, Any]:
        parsed: dict[str, Any] = self._adapter.validate_python(row, strict=True)
        return parsed

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(TypedDict("Row", self._types))  # type: ignore[operator]


PASSAGE = {int: "ordinal start_line end_line", str: "text context file kind", list[str]: "heading"}
_REF = {str: "item_type item_id version"}
_ITEM_REF = Columns(_REF)
_SCORES = {float: "cosine bm25 best_cosine first_cosine centroid_cosine best_bm25 item_bm25"}
_CANDIDATE = Columns(PASSAGE, {str: "digest content_sha256 key_id", dict[str, Any]: "metadata"}, _REF, _SCORES)
_ITEM = Columns({str: "digest content_sha256 visibility", int: "passages"}, _REF)
_STATISTICS = Columns({int: "passages total_length items", dict[str, int]: "document_frequency"})
_STATUS = Columns({int: "items versions signers", dict[str, int]: "collections", str | None: "audience active_model"})
_VECTOR_PLAN = Columns({str: "model plan", bool: "due"})
_VERSION_STATUS = Columns({str: "version digest signer_status visibility content_sha256 key_id", int: "passages"})
_RECEIPT = Columns({str: "digest audit_head visibility", int: "sequence", bool: "already_published made_public"})
_DOCUMENT_RECEIPT = Columns({str: "digest", bool: "already_published"})
_COLLECTION_STATUS = Columns(
    {int: "documents passages", str | None: "fingerprint audience", dict[str, int]: "file_types"}
)
_AUDIT_RECORD = Columns({int: "seq", str: "at event ref digest key_id details previous_hash hash"})
_SIGNER = Columns({str: "principal public_key status", list[str]: "item_patterns item_types"})
_CLAIM = Columns({ClaimState: "state"})
_PROGRESS = Columns({str: "fingerprint state", int: "passages items waiting refused"})
_INDEXED = Columns({str: "digest"})
_STORED_PASSAGE = Columns(PASSAGE, {str: "embedding", list[str]: "terms", list[int]: "frequencies", int: "length"})
_REVOKED_SIGNER = Columns({str: "key_id principal status status_reason"})


@contextmanager
def parse_as(what: str) -> Iterator[None]:
    """Name what is parsed within the block or the decorated function, for the error message.

    Raises
    ------
    RegistryError
        When a row or a value lacks a part, or a part has another type than it should.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, InvalidItemId) as error:
        raise RegistryError(f"the registry gave an invalid {what}: {type(error).__name__}") from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(strict=True))


@parse_as("object")
def parse_object(answer: object) -> dict[str, Any]:
    """Return a function's answer as an object."""
    return dict(_adapter(dict).validate_python(answer))


@parse_as("number")
def parse_integer(answer: object) -> int:
    """Return a function's answer as an integer."""
    return int(_adapter(int).validate_python(answer))


@parse_as("boolean")
def parse_boolean(answer: object) -> bool:
    """Return a function's answer as a boolean."""
    return bool(_adapter(bool).validate_python(answer))


@parse_as("text")
def parse_text(answer: object) -> str:
    """Return a function's answer as text."""
    return str(_adapter(str).validate_python(answer))


def parse_time(value: object) -> datetime | None:
    """Return a time, which psycopg gives as a `datetime` and Supabase's API as text; None for null.

    Raises
    ------
    RegistryError
        When it is neither, or has no time zone.
    """
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(time, datetime) or time.tzinfo is None:
            raise ValueError("not a time with a zone")
    except ValueError as error:
        raise RegistryError(f"the registry gave {str(value)[:40]!r} for a time") from error
    return time


def require_time(row: Row, column: str) -> datetime:
    """Return the time in a column.

    Raises
    ------
    RegistryError
        When there is none. Without a time of arrival, for example, a retired key's signature could not be judged.
    """
    time = parse_time(row[column])
    if time is None:
        raise RegistryError(f"the registry gave a row without {column}")
    return time


def parse_passage(row: Row) -> Passage:
    """Return the passage of a row with the columns of `PASSAGE`."""
    lines = row["start_line"], row["end_line"]
    names = tuple(row["heading"])
    return Passage(row["ordinal"], row["text"], row["context"], names, *lines, kind=row["kind"], file=row["file"])


@parse_as("passage")
def parse_candidate(row: Row) -> Candidate:
    """Return a row of ``search_hybrid`` as a candidate."""
    columns = _CANDIDATE(row)
    scores = (columns[name] for name in _SCORES[float].split()[2:])
    return Candidate(
        ref=_parse_ref(columns),
        digest=columns["digest"],
        content_sha256=columns["content_sha256"],
        passage=parse_passage(columns),
        cosine=columns["cosine"],
        bm25=columns["bm25"],
        metadata=columns["metadata"],
        key_id=columns["key_id"],
        signed_at=require_time(row, "signed_at"),
        item=ItemScores(*scores),
    )


def parse_ref(row: Row) -> ItemRef:
    """Return the reference in a row that cannot be parsed otherwise; ``unreadable`` when that fails too."""
    try:
        return _parse_ref(_ITEM_REF(row))
    except (KeyError, TypeError, ValueError, AttributeError, KiwiError):
        return ItemRef(ItemType.KNOWLEDGE, "unreadable")


def parse_candidates(rows: Sequence[Row], depth: int) -> Candidates:
    """Return the rows of a search. A row that cannot be parsed is listed as refused."""
    items: list[Candidate] = []
    refused: list[RefusedHit] = []
    for row in rows[: 2 * depth]:  # each of the two legs gives at most `depth`
        try:
            items.append(parse_candidate(row))
        except RegistryError as error:
            refused.append(RefusedHit(parse_ref(row), "registry", error.code, error.message))
    return Candidates(tuple(items), _parse_plan(rows[:1]), tuple(refused))


@parse_as("plan")
def _parse_plan(rows: Sequence[Row]) -> str:
    # Every row names the plan. It is null for a query without a vector, which needs no index: "exact".
    plan = next((row["plan"] for row in rows if row["plan"]), "exact")
    return parse_text(plan)[:MAX_PLAN]


@parse_as("item")
def parse_item(row: Row) -> StoredItem:
    """Return a row of ``get_item`` or ``list_items`` as a stored item; its envelope is decoded strictly."""
    columns = _ITEM(row)
    ref = _parse_ref(columns)
    return StoredItem(
        ref=ref,
        envelope=dsse.decode(row["envelope"]),
        digest=columns["digest"],
        content_sha256=columns["content_sha256"],
        admitted_at=require_time(row, "received_at"),
        policy=_policy(ref),
        passages=columns["passages"],
        yanked_at=parse_time(row["yanked_at"]),
        yank_reason=_one_line(str(row["yank_reason"])),
        private=columns["visibility"] != "public" and ref.item_type is not ItemType.DOCUMENT,
        files=parse_files(row.get("files")),
    )


def parse_item_or_problem(row: Row) -> StoredItem:
    """Return a row of a list; one that cannot be parsed becomes an item with a ``problem``, which never verifies."""
    try:
        return parse_item(row)
    except KiwiError as error:
        ref = parse_ref(row)
        digest = str(row.get("digest"))[:64]
        return StoredItem(ref, NO_ENVELOPE, digest, "", _NEVER, _policy(ref), problem=error.message)


def _policy(ref: ItemRef) -> str:
    return "shared" if ref.item_type is ItemType.DOCUMENT else "registry"


@parse_as("file of an item")
def parse_files(files: object) -> dict[str, bytes]:
    """Return files from their object, name → base64; none for null."""
    encoded = _adapter(dict[str, str]).validate_python(files or {})
    return {name: base64.b64decode(content, validate=True) for name, content in encoded.items()}


def parse_envelope(row: Row) -> Envelope:
    """Return a row's envelope; one that cannot be decoded becomes an empty one, which the gate refuses."""
    try:
        return dsse.decode(row.get("envelope"))
    except KiwiError:
        return NO_ENVELOPE


def _parse_ref(columns: Row) -> ItemRef:
    if columns["item_type"] == ItemType.DOCUMENT:
        return ItemRef(ItemType.DOCUMENT, check_path(columns["item_id"]))
    if len(columns["version"]) > MAX_VERSION:
        raise ValueError(f"a version has at most {MAX_VERSION} characters")
    return ItemRef(ItemType(columns["item_type"]), check_item_id(columns["item_id"]), columns["version"])


@parse_as("count of passages and terms")
def parse_statistics(answer: object) -> CollectionStatistics:
    """Return the object of ``collection_statistics``."""
    return CollectionStatistics(**_STATISTICS(answer))


@parse_as("list of similar terms")
def parse_similar_terms(answer: object) -> Mapping[str, list[str]]:
    """Return the object of ``similar_terms``."""
    return dict(_adapter(dict[str, list[str]]).validate_python(answer))


@parse_as("status of a registry")
def parse_registry_status(answer: object) -> dict[str, Any]:
    """Return the object of ``registry_status``."""
    status = parse_object(answer)
    _STATUS(status)
    for plan in status.setdefault("vectors", []):  # registries of earlier versions do not have it
        _VECTOR_PLAN(plan)
    return status


@parse_as("status of a version")
def parse_version_status(row: Row) -> Row:
    """Return a row of ``item_status``."""
    _VERSION_STATUS(row)
    parse_time(row["yanked_at"])
    return row


@parse_as("receipt")
def check_receipt(answer: Row) -> Row:
    """Return the receipt of ``publish_item``."""
    _RECEIPT(answer)
    return answer


@parse_as("receipt")
def check_document_receipt(answer: Row) -> bool:
    """Return whether the receipt of ``put_document`` says that nothing changed."""
    return bool(_DOCUMENT_RECEIPT(answer)["already_published"])


@parse_as("status of a collection")
def parse_collection_status(answer: object) -> dict[str, Any]:
    """Return the object of ``collection_status``."""
    status = parse_object(answer)
    _COLLECTION_STATUS(status)
    parse_time(status["last_received_at"])
    return status


@parse_as("claim")
def parse_claim(answer: object) -> Claimed:
    """Return the object of ``claim_item``."""
    claim = parse_object(answer)
    state = _CLAIM(claim)["state"]
    if state != "claimed":
        return Claimed(state)
    return Claimed(state, require_time(claim, "received_at"), parse_envelope(claim), parse_files(claim["files"]))


@parse_as("state of a collection")
def parse_progress(answer: object) -> Progress:
    """Return the object of ``finish_collection``."""
    return Progress(**_PROGRESS(answer))


@parse_as("indexed item")
def parse_indexed(row: Row) -> IndexedItem:
    """Return a row of ``indexed_items``."""
    _INDEXED(row)
    received_at = require_time(row, "received_at")
    return IndexedItem(row["digest"], received_at, dsse.decode(row["envelope"]), parse_files(row["files"]))


@parse_as("stored passage")
def parse_stored(row: Row) -> StoredPassage:
    """Return a row of ``read_passages``."""
    import numpy as np

    columns = _STORED_PASSAGE(row)
    vector = np.array(columns["embedding"].strip("[]").split(","), dtype=np.float32)
    terms = dict(zip(columns["terms"], columns["frequencies"], strict=False))
    return StoredPassage(parse_passage(columns), terms, columns["length"], vector)


@parse_as("audit record")
def parse_audit_records(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of ``audit_records``."""
    for row in found:
        _AUDIT_RECORD(row)
    return found


@parse_as("signer")
def parse_signer(row: Row) -> EnrolledSigner:
    """Return a row of ``list_signers``."""
    _SIGNER(row)
    signer = Signer(
        row["principal"],
        bytes.fromhex(row["public_key"]),
        tuple(row["item_patterns"]),
        tuple(ItemType(name) for name in row["item_types"]),
        parse_time(row["valid_after"]),
        parse_time(row["valid_before"]),
        SignerStatus(row["status"]),
    )
    return EnrolledSigner(signer, require_time(row, "status_changed_at"))


def parse_checkpoint(answer: object, name: str) -> Checkpoint:
    """Return the object of ``registry_checkpoint``; `name` is the registry's.

    Raises
    ------
    RegistryError
        When the answer is not such an object.
    """
    if not isinstance(answer, Mapping) or not isinstance(answer.get("signers"), list):
        raise RegistryError("the registry gave no list of signers whose status changed")
    yanked = answer.get("yanked")
    if not isinstance(yanked, list) or not all(map(is_hash, yanked)):
        raise RegistryError("the registry gave no list of digests that were yanked")
    head, known_hash = parse_head(answer.get("audit_head")), answer.get("known_hash")
    notices = tuple(_parse_notice(signer, name) for signer in answer["signers"][:MAX_CHECKPOINT])
    return Checkpoint(head, known_hash, notices, tuple(yanked[:MAX_CHECKPOINT]))


@parse_as("signer")
def _parse_notice(row: Row, name: str) -> RevocationNotice:
    key_id, principal, status, reason = map(_one_line, _REVOKED_SIGNER(row).values())
    if not is_hash(row["key_id"]):
        raise ValueError("a key id is a hex SHA-256")
    # A registry may only take trust away. It must not be able to give it.
    if status not in (SignerStatus.RETIRED, SignerStatus.COMPROMISED):
        raise RegistryError(f"the registry gave {status[:40]!r} for the status of a key that lost trust")
    since = require_time(row, "status_changed_at")
    return RevocationNotice(key_id, principal, SignerStatus(status), since, reason, name)


def _one_line(text: str) -> str:
    return " ".join(text[:MAX_REASON].split())


def vector_text(vector: Vector) -> str:
    """Return pgvector's text form; ``repr`` of a float keeps every bit of a float32."""
    return f"[{','.join(map(repr, vector.tolist()))}]"


def passage_object(record: EmbeddingRecord) -> dict[str, Any]:
    """Return what ``store_passages`` takes for one passage, with the terms that every tier indexes.

    Raises
    ------
    EmbeddingError
        When its vector is not of length 1: it would rank wrongly against all others.
    """
    passage = record.passage
    squared_length = float(record.vector @ record.vector)
    if not abs(squared_length - 1) < _UNIT_TOLERANCE:
        raise EmbeddingError(f"the model gave a vector of squared length {squared_length:.4g} instead of 1")
    frequencies = term_frequencies(passage.indexed_text)
    return {
        "ordinal": passage.ordinal,
        "file": passage.file,
        "kind": passage.kind,
        "text": passage.text,
        "context": passage.context,
        "heading": list(passage.heading),
        "start_line": passage.start_line,
        "end_line": passage.end_line,
        "length": frequencies.total(),
        "terms": list(frequencies),
        "frequencies": list(frequencies.values()),
        "embedding": vector_text(record.vector),
    }


def search_arguments(query: StoreQuery) -> dict[str, Any]:
    """Return what ``search_hybrid`` takes for a query; BM25 weighs by its own statistics."""
    weights = bm25_weights(query.statistics, query.terms)
    return {
        "query_embedding": vector_text(query.vector),
        "terms": list(weights),
        "weights": list(weights.values()),
        "average_length": query.statistics.average_length,
        "average_item_length": query.statistics.average_item_length,
        "depth": query.depth,
        "filter": filter_object(query.filters),
        "model_fingerprint": query.fingerprint,
    }


def filter_object(filters: Filters) -> dict[str, Any]:
    """Return the filters as the SQL functions take them, without those that are not set."""
    texts = {
        "item_type": filters.item_type.value if filters.item_type else "",
        "category": filters.category,
        "author": filters.author,
        "namespace": filters.namespace,
        "signer": filters.signer,
        "since": filters.since.isoformat() if filters.since else "",
        "service": filters.service,
        "domain": filters.domain,
        "path": filters.path,
    }
    lists = {"tags": filters.tags, "file_type": filters.file_types}
    return {name: text for name, text in texts.items() if text} | {n: list(some) for n, some in lists.items() if some}
