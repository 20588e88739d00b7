"""The records that the packages exchange: frozen values without behaviour.

Imports only the errors from Kiwi. Vectors are ``numpy.ndarray`` of ``float32``; numpy is only named in annotations, so
that importing this package stays cheap.
"""

from typing import TYPE_CHECKING

from kiwi_rag.model.items import (
    Admission,
    Document,
    EmbeddingRecord,
    Envelope,
    Finding,
    Item,
    ItemState,
    Passage,
    Section,
    Severity,
    StoredItem,
    Visibility,
    content_digest,
    has_errors,
    sha256_hex,
)
from kiwi_rag.model.search import (
    Candidate,
    Candidates,
    CollectionStatistics,
    Explanation,
    Filters,
    FusionMethod,
    FusionWeights,
    ItemScores,
    RefusedHit,
    SearchQuery,
    SearchReply,
    SearchResult,
    StoreQuery,
    TierName,
    TierOutcome,
    TierState,
    VersionConflict,
)

if TYPE_CHECKING:
    from kiwi_rag.model.items import Vector as Vector

__all__ = [
    "Admission",
    "Candidate",
    "Candidates",
    "CollectionStatistics",
    "Document",
    "EmbeddingRecord",
    "Envelope",
    "Explanation",
    "Filters",
    "Finding",
    "FusionMethod",
    "FusionWeights",
    "Item",
    "ItemScores",
    "ItemState",
    "Passage",
    "RefusedHit",
    "SearchQuery",
    "SearchReply",
    "SearchResult",
    "Section",
    "Severity",
    "StoreQuery",
    "StoredItem",
    "TierName",
    "TierOutcome",
    "TierState",
    "VersionConflict",
    "Visibility",
    "content_digest",
    "has_errors",
    "sha256_hex",
]
