"""Documents as Qdrant and Weaviate hold them: written into flat payloads, and read back strictly.

A document has a *head* and passages. The head names the *generation* of passages that counts and holds the signed
envelope. A generation is named by its *turn* (one more than the head's when the write began) and a digest of all that
is written. Ids are UUIDs of version 5: of the path for a head, of path, generation and ordinal for a passage; and of
the partition, where one collection holds several. Whoever can write to a collection could have written these payloads:
a part that is missing or of another type makes the point a `StoreCorrupt`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Literal
from uuid import UUID, uuid5

from pydantic import Json

from kiwi_rag.errors import KiwiError, SignatureRefused, StoreCorrupt
from kiwi_rag.model.items import Admission, EmbeddingRecord, Passage, StoredItem
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.model.search import Candidate, Filters, ItemScores
from kiwi_rag.registry.rows import ENVELOPE, NEVER, NO_ENVELOPE, PASSAGE, TIME, Columns, make_record, parse_ref
from kiwi_rag.signing import dsse
from kiwi_rag.stores.base import NOT_FOUND_BY_VECTOR, timestamp
from kiwi_rag.symbols import passage_terms

SCHEMA = 100
MAX_PASSAGES = 1_000_000
_NAMESPACE = UUID("5f0cbd0f-5c0a-5d0e-9d4e-3f6a1c1b7c11")
Payload = Mapping[str, Any]
Condition = tuple[Sequence[str], Sequence[str] | datetime]
_FOREIGN = "did a program other than Kiwi write to this collection?"
_HEAD = Columns({str: "kind item_id generation", int: "turn of"})
_TYPE = {Literal["document"]: "item_type"}
_SIGNED = Columns(_TYPE, {str: "digest content_sha256 key_id", TIME: "signed_at", Json[dict[str, Any]]: "metadata"})
_STORED = Columns(_TYPE, {str: "digest content_sha256 policy", TIME: "admitted_at", int: "of", ENVELOPE: "envelope"})
_POINT = Columns({str: "item_id generation", object: "passage"})
_PASSAGE = Columns(PASSAGE)


@dataclass(frozen=True, slots=True)
class Point:
    """What a server keeps under an id; one that a leg of a search found has its cosine, or its score by words."""

    id: str
    payload: Payload
    score: float = math.nan


@dataclass(frozen=True, slots=True)
class DocumentHead:
    """Which generation of a document counts, and ``of`` how many passages.

    ``turn`` 0: nothing was ever written. No ``generation``: the document is not there.
    """

    item_id: str
    turn: int = 0
    generation: str = ""
    of: int = 0

    @property
    def state(self) -> str:
        """The digest of what was written; empty where nothing is there."""
        return self.generation.partition("-")[2]


def head_id(path: str, partition: str = "") -> str:
    """Return the id of a document's head; `partition` where one collection holds several."""
    return _uuid(partition, f"head\0document:{path}")


def passage_id(path: str, generation: str, ordinal: int, partition: str = "") -> str:
    """Return the id of a passage."""
    return _uuid(partition, f"passage\0document:{path}\0{generation}\0{ordinal}")


def _uuid(partition: str, name: str) -> str:
    return str(uuid5(_NAMESPACE, f"partition\0{partition}\0{name}" if partition else name))


def state_of(admission: Admission, records: Sequence[EmbeddingRecord]) -> str:
    """Return a digest of all that is written of a document except when it was admitted: equal ones need no write."""
    admitted = admission.digest, admission.item.content_sha256, admission.policy, admission.principal
    parts = SCHEMA, admitted, admission.envelope.signatures, records[0].fingerprint, [r.passage for r in records]
    vectors = b"".join(record.vector.astype("<f4").tobytes() for record in records)
    return hashlib.sha256(repr(parts).encode() + vectors).hexdigest()


def head_payload(admission: Admission) -> dict[str, Any]:
    """Return what a document's head says besides the fields of `DocumentHead`."""
    return filtered_fields(admission) | {
        "kind": "head",
        "digest": admission.digest,
        "content_sha256": admission.item.content_sha256,
        "envelope": dsse.encode(admission.envelope),
        "policy": admission.policy,
        "admitted_at": timestamp(admission.admitted_at),
        "metadata": json.dumps(admission.item.metadata, ensure_ascii=False, sort_keys=True, default=dict),
    }


def passage_payloads(
    records: Sequence[EmbeddingRecord], head: DocumentHead, partition: str = ""
) -> Iterator[tuple[EmbeddingRecord, str, dict[str, Any], Counter[str]]]:
    """Yield each passage of a generation with its id, its payload, and how often it has each term."""
    for record in records:
        passage, (frequencies, length) = record.passage, passage_terms(record.admission.ref, record.passage)
        own = {"generation": head.generation, "length": length, "terms": list(frequencies)}
        own["passage"] = asdict(passage) | {"heading": list(passage.heading)}
        id_ = passage_id(head.item_id, head.generation, passage.ordinal, partition)
        yield record, id_, filtered_fields(record.admission) | own, frequencies


def filtered_fields(admission: Admission) -> dict[str, Any]:
    """Return what filters are applied to; heads and passages have it alike."""
    ref, metadata = admission.ref, admission.item.metadata
    parts = ref.item_id.split("/")
    texts = {name: str(metadata.get(name) or "") for name in ("category", "author", "file_type", "service", "domain")}
    return texts | {
        "item_type": ref.item_type.value,
        "item_id": ref.item_id,
        "folders": ["/".join(parts[:depth]) for depth in range(1, len(parts))],
        "namespace": ref.namespace,
        "tags": list(dict.fromkeys(str(tag) for tag in metadata.get("tags") or ())),
        "principal": admission.principal,
        "key_id": admission.key_id,
        "signed_at": timestamp(admission.signed_at),
    }


def conditions(kind: str, filters: Filters, values: dict[str, str]) -> Iterator[Condition]:
    """Yield what holds for points of a kind that have some values and pass filters, except for a path with wildcards.

    Each is some fields, of which one has, or contains, one of some values; with a time, it is not before that.
    """
    wanted = {"item_type": filters.item_type.value if filters.item_type else ""}
    wanted |= {name: getattr(filters, name) for name in ("category", "author", "namespace", "service", "domain")}
    wanted = {name: value for name, value in wanted.items() if value}
    yield from (([name], [value]) for name, value in ({"kind": kind} | values | wanted).items())
    if filters.file_types:
        yield ["file_type"], filters.file_types
    yield from ((["tags"], [tag]) for tag in sorted(set(filters.tags)))
    if (path := filters.path.rstrip("/")) and not path_pattern(filters):
        yield ["item_id", "folders"], [path]
    if filters.signer:
        yield ["principal", "key_id"], [filters.signer]
    if filters.since:
        yield ["signed_at"], filters.since if filters.since.tzinfo else filters.since.replace(tzinfo=UTC)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except SignatureRefused as error:
        raise StoreCorrupt(f"the index holds a malformed {what}: {error.message}", hint=_FOREIGN) from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise StoreCorrupt(f"the index holds a malformed {what}: {type(error).__name__}", hint=_FOREIGN) from error


@_reading("head of a document")
def read_head(payload: Payload, path: str) -> DocumentHead:
    """Return the head of the document at `path` from its payload."""
    row = _HEAD(payload)
    head = make_record(DocumentHead, row)
    if head.item_id != path or head.turn < 1:
        raise ValueError("the head of another document")
    if not (row["kind"] == "head") == bool(head.generation) == (0 < head.of <= MAX_PASSAGES):
        raise ValueError("a head without passages")
    return head


@_reading("document")
def read_candidates(payload: Payload, found: Sequence[FoundPassage]) -> list[Candidate]:
    """Return what was found of a document, with what its head says of it."""
    # The best scores of the found passages are the document's: those of its others are not known.
    cosine, words = max((one.cosine for one in found), default=0.0), max((one.words for one in found), default=0.0)
    item = ItemScores(cosine, cosine, cosine, words, words)
    row, ref = _SIGNED(payload), ref_of(payload)
    scored = [(one, {"cosine": one.cosine, "bm25": one.words, "item": item}) for one in found]
    return [make_record(Candidate, row, ref=ref, passage=one.passage, **scores) for one, scores in scored]


@_reading("document")
def read_document(payload: Payload) -> StoredItem:
    """Return a head as a stored document; its envelope is decoded strictly."""
    row = _STORED(payload)
    return make_record(StoredItem, row, ref=ref_of(payload), passages=row["of"])


def read_document_or_problem(payload: Payload) -> StoredItem:
    """Return a head as a stored document; a malformed one gets a ``problem``, and never verifies."""
    try:
        return read_document(payload)
    except KiwiError as error:
        digest = str(payload.get("digest"))[:64]
        return StoredItem(ref_of(payload), NO_ENVELOPE, digest, "", NEVER, "", problem=error.message)


@dataclass(slots=True)
class FoundPassage:
    """A passage of one generation of a document, with the scores of the legs that found it."""

    path: str
    generation: str
    passage: Passage
    cosine: float = NOT_FOUND_BY_VECTOR
    words: float = 0.0


@_reading("passage")
def read_passage(point: Point, partition: str = "") -> FoundPassage:
    """Return the passage of a point whose id is that of its path, generation and ordinal."""
    row = _POINT(point.payload)
    passage = make_record(Passage, _PASSAGE(row["passage"]))
    if point.id != passage_id(row["item_id"], row["generation"], passage.ordinal, partition):
        raise ValueError("a point of another id")
    if not math.isfinite(point.score):
        raise ValueError("no finite number")
    return FoundPassage(row["item_id"], row["generation"], passage)


def ref_of(payload: Payload) -> ItemRef:
    """Return the document that a point names; ``unreadable`` where it names none."""
    return parse_ref({"item_type": ItemType.DOCUMENT.value, "version": "", "item_id": payload.get("item_id")})


def path_pattern(filters: Filters) -> str:
    """Return the filters' path if it holds wildcards."""
    return filters.path.rstrip("/") if "*" in filters.path or "?" in filters.path else ""


def matches_path(filters: Filters, item_id: str) -> bool:
    """Whether a path passes the filters: itself, or one of the folders above it."""
    pattern = filters.path.rstrip("/").replace("[", "[[]")  # literal in a filter
    return not pattern or any(fnmatchcase(item_id, one) for one in (pattern, f"{pattern}/*"))
