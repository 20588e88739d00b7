"""JSON Schemas of the arguments and answers of the items' tools."""

from __future__ import annotations

from typing import get_args

from kiwi_rag.collection import SOURCES
from kiwi_rag.mcp.tool import STRING, SchemaDict, nullable, record, text, texts
from kiwi_rag.model import TierName
from kiwi_rag.model.refs import ITEM_TYPES

_TYPES = [item_type.value for item_type in ITEM_TYPES]
TIER: SchemaDict = {"type": "string", "enum": list(get_args(TierName))}

_SOURCE = text("Tiers to search; local is project and user. The settings' default if left out.", enum=list(SOURCES))
_BUDGET: SchemaDict = {
    "type": "integer",
    "minimum": 50,
    "maximum": 100_000,
    "description": "About how many tokens of content to return; the continuation gives the rest.",
}
_CONTINUATION = text("From the previous answer, to continue where it ended.", default="", maxLength=200)
_REF = text(
    "[type:]item_id[@version][@tier], for instance directive:acme/deploy/staging or acme/slo@1.2.0@registry.",
    minLength=1,
    maxLength=500,
)

SEARCH: dict[str, SchemaDict] = {
    "query": text("What to find or do, in plain words; identifiers too.", minLength=1, maxLength=10_000),
    "source": _SOURCE,
    "item_type": text("Only this type.", enum=_TYPES),
    "category": text("Only this category.", maxLength=200),
    "author": text("Only this author.", maxLength=200),
    "tags": texts("Only items that have all these tags."),
    "namespace": text("Only ids with this first segment.", maxLength=200),
    "signer": text("Only items signed by this principal or key id.", maxLength=200),
    "since": text("Only items signed since this date, ISO 8601, UTC.", maxLength=40),
    "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 5, "description": "Hits to show."},
    "max_tokens": {**_BUDGET, "default": 4_000},
    "continuation": _CONTINUATION,
    "explain": {"type": "boolean", "default": False, "description": "Explain how the scores were computed."},
}
SEARCH_ALIASES = {
    "q": "query", "text": "query", "top_k": "limit", "k": "limit", "n_results": "limit", "max_results": "limit",
    "type": "item_type", "tier": "source", "cursor": "continuation",
}  # fmt: skip
GET: dict[str, SchemaDict] = {
    "ref": _REF,
    "source": {**_SOURCE, "description": "Tiers to search if the ref names none; the settings' default if left out."},
    "max_tokens": {**_BUDGET, "default": 8_000},
    "continuation": _CONTINUATION,
}
GET_ALIASES = {
    "id": "ref", "item_id": "ref", "name": "ref", "address": "ref", "tier": "source", "cursor": "continuation",
}  # fmt: skip
VALIDATE: dict[str, SchemaDict] = {
    "item_type": text("Type of the draft.", enum=_TYPES),
    "item_id": text(
        "Id of the draft: its path below the type's folder, without the extension.", minLength=1, maxLength=255
    ),
    "content": text("The whole file.", maxLength=2_000_000),
}
VALIDATE_ALIASES = {"type": "item_type", "id": "item_id", "text": "content"}
PUBLISH: dict[str, SchemaDict] = {
    "refs": {**texts("Signed items of this project, each as [type:]item_id."), "minItems": 1},
}
PUBLISH_ALIASES = {"items": "refs", "ids": "refs"}

_VERSION, _CITED = nullable(STRING), "ref item_type item_id signer key_id digest"
HIT = record(
    string=f"{_CITED} path file text",
    version=_VERSION,
    tier=TIER,
    boolean="verified changed yanked truncated",
    integer="rank start_line end_line",
    number="score",
    object="parts",
    strings="heading",
)
HITS = record(
    string="query",
    boolean="complete",
    hits={"type": "array", "items": HIT},
    objects="tiers",
    integer="refused",
    strings="notices",
    continuation=nullable(STRING),
)
CONTENT = record(
    string=f"{_CITED} signed_at content",
    version=_VERSION,
    tier=TIER,
    boolean="verified changed yanked private",
    objects="permissions inputs",
    object="metadata",
    continuation=nullable(STRING),
)
FINDINGS = record(boolean="valid", objects="findings")
STATUS = record(
    objects="tiers errors",
    object="model cache service",
    string="project",
    integer="trusted_signers",
    boolean="writable",
)
PUBLISHED = record(objects="published refused", boolean="searchable")
