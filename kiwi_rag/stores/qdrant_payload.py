"""Points of a Qdrant collection: a document written into payloads and read back, and filters as conditions on them.

A collection holds four kinds of points, by their payload's ``kind``:

``passage``
    One passage of one *generation* of a document, with two vectors: ``dense``, the model's, and ``words``, its terms.
``staged``
    The same before its generation is complete; no reader looks at it.
``head``
    One a document, without vectors: the generation that counts, and the signed envelope.
``gone``
    The head of a document that was deleted: its turn.

Ids are UUIDs of version 5: of the path for a head; of path, generation and ordinal for a passage. A generation is
named by its *turn* (one more than the head's when the write began) and a digest of all that is written, so that no two
writes with different content share a point.
Payloads are read strictly: a part that is missing or of another type makes the point a `StoreCorrupt`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Literal
from uuid import UUID, uuid5

from pydantic import Json
from qdrant_client import models

from kiwi_rag.errors import KiwiError, SignatureRefused, StoreCorrupt
from kiwi_rag.lexical import K1, B
from kiwi_rag.model import (
    Admission,
    Candidate,
    EmbeddingRecord,
    Filters,
    ItemRef,
    ItemScores,
    ItemType,
    Passage,
    RefusedHit,
    StoredItem,
)
from kiwi_rag.registry.rows import ENVELOPE, NEVER, NO_ENVELOPE, PASSAGE, TIME, Columns, make_record, parse_ref
from kiwi_rag.signing import dsse
from kiwi_rag.stores.base import NOT_FOUND_BY_VECTOR, timestamp
from kiwi_rag.stores.qdrant_connection import DENSE, SCHEMA, WORDS
from kiwi_rag.symbols import passage_terms

MAX_PASSAGES = 1_000_000
_AVERAGE_LENGTH = 100.0
"""The average passage length, in terms, that the ``words`` vectors are computed for: the true one changes with every
write, and Qdrant cannot apply it."""
_NAMESPACE = UUID("5f0cbd0f-5c0a-5d0e-9d4e-3f6a1c1b7c11")
Payload = Mapping[str, Any] | None
_FOREIGN = "did a program other than Kiwi write to this collection?"
_HEAD = Columns({str: "kind item_id generation", int: "turn of"})
_TYPE = {Literal["document"]: "item_type"}
_SIGNED = Columns(_TYPE, {str: "digest content_sha256 key_id", TIME: "signed_at", Json[dict[str, Any]]: "metadata"})
_STORED = Columns(_TYPE, {str: "digest content_sha256 policy", TIME: "admitted_at", int: "of", ENVELOPE: "envelope"})
_POINT = Columns({str: "item_id generation", object: "passage"})
_PASSAGE = Columns(PASSAGE)


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


def head_id(path: str) -> str:
    """Return the id of a document's head."""
    return str(uuid5(_NAMESPACE, f"head\0document:{path}"))


def passage_id(path: str, generation: str, ordinal: int) -> str:
    """Return the id of a passage."""
    return str(uuid5(_NAMESPACE, f"passage\0document:{path}\0{generation}\0{ordinal}"))


def sparse_index(term: str) -> int:
    """Return a term's index in sparse vectors, 32 bits of its hash; two terms may share one."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=4).digest(), "big")


def state_of(admission: Admission, records: Sequence[EmbeddingRecord]) -> str:
    """Return a digest of all that is written of a document except when it was admitted: equal ones need no write."""
    admitted = admission.digest, admission.item.content_sha256, admission.policy, admission.principal
    parts = SCHEMA, admitted, admission.envelope.signatures, records[0].fingerprint, [r.passage for r in records]
    vectors = b"".join(record.vector.astype("<f4").tobytes() for record in records)
    return hashlib.sha256(repr(parts).encode() + vectors).hexdigest()


def head_payload(admission: Admission) -> dict[str, Any]:
    """Return what a document's head says besides the fields of `DocumentHead`."""
    return _filtered(admission) | {
        "kind": "head",
        "digest": admission.digest,
        "content_sha256": admission.item.content_sha256,
        "envelope": dsse.encode(admission.envelope),
        "policy": admission.policy,
        "admitted_at": timestamp(admission.admitted_at),
        "metadata": json.dumps(admission.item.metadata, ensure_ascii=False, sort_keys=True, default=dict),
    }


def passage_points(records: Sequence[EmbeddingRecord], turn: int, generation: str) -> list[models.PointStruct]:
    """Return a document's passages as staged points."""
    state = {"kind": "staged", "turn": turn, "generation": generation, "at": timestamp(datetime.now(UTC))}
    points = []
    for record in records:
        passage, (frequencies, length) = record.passage, passage_terms(record.admission.ref, record.passage)
        vector: dict[str, Any] = {DENSE: record.vector.tolist()}
        if weights := _term_weights(frequencies, length):
            vector[WORDS] = models.SparseVector(indices=list(weights), values=list(weights.values()))
        own = {"length": length, "terms": list(frequencies)}
        own["passage"] = asdict(passage) | {"heading": list(passage.heading)}
        id_ = passage_id(record.admission.ref.item_id, generation, passage.ordinal)
        points.append(models.PointStruct(id=id_, vector=vector, payload=_filtered(record.admission) | state | own))
    return points


def _term_weights(frequencies: Mapping[str, int], length: int) -> dict[int, float]:
    """Return index → what a term adds to BM25 per unit of its IDF, with which Qdrant multiplies it (modifier idf)."""
    norm = K1 * (1 - B + B * length / _AVERAGE_LENGTH)
    return {sparse_index(term): tf * (K1 + 1) / (tf + norm) for term, tf in frequencies.items()}


def _filtered(admission: Admission) -> dict[str, Any]:
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


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except SignatureRefused as error:
        raise StoreCorrupt(f"Qdrant returned a malformed {what}: {error.message}", hint=_FOREIGN) from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise StoreCorrupt(f"Qdrant returned a malformed {what}: {type(error).__name__}", hint=_FOREIGN) from error


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
def read_candidate(payload: Payload, passage: Passage, cosine: float, words: float, scores: ItemScores) -> Candidate:
    """Return a passage with its scores and what a head says of its document."""
    found = {"passage": passage, "cosine": cosine, "bm25": words, "item": scores}
    return make_record(Candidate, _SIGNED(payload), ref=ref_of(payload), **found)


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
        digest = str((payload or {}).get("digest"))[:64]
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
def read_passage(point: models.ScoredPoint) -> tuple[FoundPassage, float]:
    """Return the passage of a point whose id is that of its path, generation and ordinal, and the point's score."""
    row = _POINT(point.payload)
    passage = make_record(Passage, _PASSAGE(row["passage"]))
    if str(point.id) != passage_id(row["item_id"], row["generation"], passage.ordinal):
        raise ValueError("a point of another id")
    if isinstance(point.score, bool) or not math.isfinite(point.score):
        raise ValueError("no finite number")
    return FoundPassage(row["item_id"], row["generation"], passage), float(point.score)


def refused(payload: Payload, error: KiwiError) -> RefusedHit:
    """Return what is reported of a point that cannot be read."""
    return RefusedHit(ref_of(payload), "qdrant", error.code, error.message)


def ref_of(payload: Payload) -> ItemRef:
    """Return the document that a point names; ``unreadable`` where it names none."""
    return parse_ref({"item_type": ItemType.DOCUMENT.value, "version": "", "item_id": (payload or {}).get("item_id")})


def equals(key: str, value: str | int) -> models.FieldCondition:
    """Return the condition that a field has a value, or that a list of values contains it."""
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def one_of(key: str, values: Sequence[str]) -> models.FieldCondition:
    """Return the condition that a field has one of some values; without values, one that nothing meets."""
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values) or [""]))


def points_of(kind: str, filters: Filters | None = None, *others: Any, **values: str) -> models.Filter:
    """Return the condition for points of a kind that pass the filters and other conditions, and have some values.

    Heads and passages are filtered alike. Of a path's pattern only its folder is a condition.
    """
    filters = filters or Filters()
    pattern = path_pattern(filters)
    texts = {
        "item_type": filters.item_type.value if filters.item_type else "",
        # The folder that a pattern names before its first wildcard.
        "folders": re.split(r"[*?]", pattern)[0].rpartition("/")[0] if pattern else "",
        **{name: getattr(filters, name) for name in ("category", "author", "namespace", "service", "domain")},
    }
    must: list[Any] = [equals("kind", kind), *others, *(equals(key, value) for key, value in values.items())]
    must += [equals(key, value) for key, value in texts.items() if value]
    must += [one_of("file_type", filters.file_types)] if filters.file_types else []
    must += [equals("tags", tag) for tag in sorted(set(filters.tags))]
    if (path := filters.path.rstrip("/")) and not pattern:
        must.append(models.Filter(should=[equals("item_id", path), equals("folders", path)]))
    if filters.signer:
        must.append(models.Filter(should=[equals(key, filters.signer) for key in ("principal", "key_id")]))
    if filters.since:
        since = filters.since if filters.since.tzinfo else filters.since.replace(tzinfo=UTC)
        must.append(models.FieldCondition(key="signed_at", range=models.DatetimeRange(gte=since)))
    return models.Filter(must=must)


def path_pattern(filters: Filters) -> str:
    """Return the filters' path if it holds wildcards; Qdrant has no condition for those."""
    return filters.path.rstrip("/") if "*" in filters.path or "?" in filters.path else ""


def matches_path(filters: Filters, item_id: str) -> bool:
    """Whether a path passes the filters: itself, or one of the folders above it."""
    pattern = filters.path.rstrip("/").replace("[", "[[]")  # literal in a filter
    return not pattern or any(fnmatchcase(item_id, one) for one in (pattern, f"{pattern}/*"))
