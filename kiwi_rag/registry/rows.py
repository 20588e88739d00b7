"""Rows of the registry's functions → Kiwi's records, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import EmbeddingError, RegistryError
from kiwi_rag.lexical import term_frequencies
from kiwi_rag.model import Candidate, CollectionStatistics, EmbeddingRecord, Filters, Passage, StoredItem
from kiwi_rag.refs import ItemRef, ItemType
from kiwi_rag.signing import dsse

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

_UNIT_TOLERANCE = 1e-3
_NEVER = datetime.min.replace(tzinfo=UTC)


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
    frequencies = term_frequencies(passage.embedded_text)
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


def candidate(row: Mapping[str, Any]) -> Candidate:
    """Return a row of ``search_hybrid`` as a candidate."""
    passage = Passage(
        row["ordinal"], row["text"], row["context"], tuple(row["heading"]), row["start_line"], row["end_line"]
    )
    return Candidate(
        ref=ItemRef(ItemType(row["item_type"]), row["item_id"], row["version"]),
        digest=row["digest"],
        content_sha256=row["content_sha256"],
        passage=passage,
        cosine=row["cosine"],
        bm25=row["bm25"],
        metadata=row["metadata"],
        key_id=row["key_id"],
        signed_at=moment(row["signed_at"]) or _NEVER,
    )


def stored_item(row: Mapping[str, Any]) -> StoredItem:
    """Return a row of ``get_item`` or ``list_items`` as a stored item; its envelope is decoded strictly.

    Raises
    ------
    RegistryError
        When the row is not one that a registry gives; without a time of arrival a retired key could not be judged.
    """
    received = moment(row["received_at"])
    if row["item_type"] not in list(ItemType) or received is None:
        raise RegistryError("the registry gave an item without a type or a time of arrival")
    return StoredItem(
        ref=ItemRef(ItemType(row["item_type"]), row["item_id"], row["version"]),
        envelope=dsse.decode(row["envelope"]),
        digest=row["digest"],
        content_sha256=row["content_sha256"],
        admitted_at=received,
        policy="registry",
        passages=row["passages"],
    )


def statistics(answer: Mapping[str, Any]) -> CollectionStatistics:
    """Return the object of ``collection_statistics``."""
    return CollectionStatistics(answer["passages"], answer["total_length"], dict(answer["document_frequency"]))


def bm25_inputs(weights: Mapping[str, float]) -> tuple[Sequence[str], Sequence[float]]:
    """Return terms and weights as two parallel lists, which is how SQL takes them."""
    return list(weights), list(weights.values())
