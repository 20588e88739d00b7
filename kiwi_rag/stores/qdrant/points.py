"""Admitted records → points. What is written here is read by `kiwi_rag.stores.qdrant.reading`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kiwi_rag.lexical import term_frequencies
from kiwi_rag.signing import dsse
from kiwi_rag.stores.qdrant import layout
from kiwi_rag.stores.qdrant.weights import passage_weights

if TYPE_CHECKING:
    from qdrant_client import models

    from kiwi_rag.model import Admission, EmbeddingRecord, Passage


@dataclass(frozen=True, slots=True)
class Turn:
    """One write of one item: the head's next turn, and the generation that it is to make the one that counts."""

    item: str
    number: int
    generation: str


def state_of(admission: Admission, records: Sequence[EmbeddingRecord]) -> str:
    """Return a digest of all that is written of an item, but of when it was admitted: equal ones need no write."""
    told = hashlib.sha256()
    for part in (admission.digest, admission.item.content_sha256, admission.policy, admission.principal):
        told.update(f"{part}\0".encode())
    told.update(repr((layout.SCHEMA, admission.envelope.signatures, records[0].fingerprint)).encode())
    for record in records:
        told.update(repr(record.passage).encode())
        told.update(record.vector.astype("<f4").tobytes())
    return told.hexdigest()


def head_point(
    turn: Turn, admission: Admission, records: Sequence[EmbeddingRecord], state: str, versions: Mapping[str, str]
) -> models.PointStruct:
    """Return an item's head for a generation: everything of it that is no passage's."""
    import numpy as np
    from qdrant_client import models

    item = admission.item
    total = np.sum([record.vector for record in records], axis=0, dtype=np.float64)
    payload = _narrowing(admission) | {
        "kind": "head",
        "item": turn.item,
        "turn": turn.number,
        "generation": turn.generation,
        "state": state,
        "of": len(records),
        "total_length": sum(term_frequencies(r.passage.indexed_text).total() for r in records),
        "norm": float(np.linalg.norm(total)),
        "version": item.ref.version or "",
        "digest": admission.digest,
        "content_sha256": item.content_sha256,
        "envelope": dsse.encode(admission.envelope),
        "policy": admission.policy,
        "admitted_at": _moment(admission.admitted_at),
        "metadata": json.dumps(_plain(item.metadata), ensure_ascii=False, sort_keys=True),
        "versions": dict(versions),
    }
    return models.PointStruct(id=layout.head_id(turn.item), vector={}, payload=payload)


def gone_point(turn: Turn, versions: Mapping[str, str]) -> models.PointStruct:
    """Return the head of an item that is not there any more."""
    from qdrant_client import models

    payload = {"kind": "gone", "item": turn.item, "turn": turn.number, "generation": "", "versions": dict(versions)}
    return models.PointStruct(id=layout.head_id(turn.item), vector={}, payload=payload)


def writing_point(turn: Turn, now: datetime) -> models.PointStruct:
    """Return the point that says that a write has begun."""
    from qdrant_client import models

    payload = {"kind": "writing", "item": turn.item, "turn": turn.number, "generation": turn.generation}
    return models.PointStruct(
        id=layout.writing_id(turn.item, turn.generation), vector={}, payload=payload | {"at": _moment(now)}
    )


def passage_points(turn: Turn, records: Sequence[EmbeddingRecord]) -> list[models.PointStruct]:
    """Return an item's passages, in the order of their ordinals."""
    ordered = sorted(records, key=lambda record: record.passage.ordinal)
    shared = _narrowing(ordered[0].admission) | {
        "kind": "passage",
        "item": turn.item,
        "turn": turn.number,
        "generation": turn.generation,
        "of": len(ordered),
    }
    return [_passage_point(turn, place, record, shared) for place, record in enumerate(ordered)]


def _passage_point(turn: Turn, place: int, record: EmbeddingRecord, shared: Mapping[str, Any]) -> models.PointStruct:
    from qdrant_client import models

    frequencies = term_frequencies(record.passage.indexed_text)
    weights = passage_weights(frequencies, frequencies.total())
    vector: dict[str, Any] = {layout.DENSE: record.vector.tolist()}
    if weights:
        vector[layout.WORDS] = models.SparseVector(indices=list(weights), values=list(weights.values()))
    own = {"place": place, "length": frequencies.total(), "counts": dict(frequencies)}
    payload = {**shared, **own, **_told(record.passage), **_buckets(frequencies)}
    return models.PointStruct(id=layout.passage_id(turn.item, turn.generation, place), vector=vector, payload=payload)


def _told(passage: Passage) -> dict[str, Any]:
    return {
        "ordinal": passage.ordinal,
        "text": passage.text,
        "context": passage.context,
        "heading": list(passage.heading),
        "start_line": passage.start_line,
        "end_line": passage.end_line,
        "section": passage.kind,
    }


def _buckets(frequencies: Mapping[str, int]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for term in frequencies:
        found.setdefault(layout.bucket(term), []).append(term)
    return found


def _narrowing(admission: Admission) -> dict[str, Any]:
    """Return what filters look at; heads and passages have it alike, so that both legs are narrowed by the server."""
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
        "signed_at": _moment(admission.signed_at),
    }


def _moment(moment: datetime) -> str:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="microseconds")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
