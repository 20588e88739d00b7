"""JSON Schemas of what the items' tools take and give."""

from __future__ import annotations

from typing import get_args

from kiwi_rag.collection import SOURCES
from kiwi_rag.mcp.tool import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    OBJECTS,
    STRING,
    STRINGS,
    SchemaDict,
    maybe,
    record,
    text,
    texts,
)
from kiwi_rag.model import TierName
from kiwi_rag.model.refs import ITEM_TYPES

_TYPES = [item_type.value for item_type in ITEM_TYPES]
TIER: SchemaDict = {"type": "string", "enum": list(get_args(TierName))}

_SOURCE = text(
    "Tiers to ask: project, user, registry, local (project and user) or all; what is set here when left out.",
    enum=list(SOURCES),
)
_BUDGET: SchemaDict = {
    "type": "integer",
    "minimum": 50,
    "maximum": 100_000,
    "description": "About how many tokens of content the answer may have; the rest comes by its continuation.",
}
_CONTINUATION = text("From the answer before, to go on where it ended.", default="", maxLength=200)
_REF = text(
    "[type:]item_id[@version][@tier], for instance directive:acme/deploy/staging or acme/slo@1.2.0@registry.",
    minLength=1,
    maxLength=500,
)

SEARCH: dict[str, SchemaDict] = {
    "query": text("What is to be found or done, in plain words; identifiers too.", minLength=1, maxLength=10_000),
    "source": _SOURCE,
    "item_type": text("Only this type.", enum=_TYPES),
    "category": text("Only this category.", maxLength=200),
    "author": text("Only this author.", maxLength=200),
    "tags": texts("Only items that have all these tags."),
    "namespace": text("Only ids whose first segment this is.", maxLength=200),
    "signer": text("Only items signed by this principal or key id.", maxLength=200),
    "since": text("Only what was signed since this date, ISO 8601, UTC.", maxLength=40),
    "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 5, "description": "Hits to show."},
    "max_tokens": {**_BUDGET, "default": 4_000},
    "continuation": _CONTINUATION,
    "explain": {"type": "boolean", "default": False, "description": "Tell how the scores came about."},
}
SEARCH_ALIASES = {
    "q": "query", "text": "query", "top_k": "limit", "k": "limit", "n_results": "limit", "max_results": "limit",
    "type": "item_type", "tier": "source", "cursor": "continuation",
}  # fmt: skip
GET: dict[str, SchemaDict] = {
    "ref": _REF,
    "source": {**_SOURCE, "description": "Tiers to look in, where the ref names none; what is set here when left out."},
    "max_tokens": {**_BUDGET, "default": 8_000},
    "continuation": _CONTINUATION,
}
GET_ALIASES = {
    "id": "ref", "item_id": "ref", "name": "ref", "address": "ref", "tier": "source", "cursor": "continuation",
}  # fmt: skip
VALIDATE: dict[str, SchemaDict] = {
    "item_type": text("What it is.", enum=_TYPES),
    "item_id": text("Its id: its path below the type's folder, without the extension.", minLength=1, maxLength=255),
    "content": text("The whole file.", maxLength=2_000_000),
}
VALIDATE_ALIASES = {"type": "item_type", "id": "item_id", "text": "content"}
PUBLISH: dict[str, SchemaDict] = {
    "refs": {**texts("Items of this project, signed already: [type:]item_id each."), "minItems": 1},
}
PUBLISH_ALIASES = {"items": "refs", "ids": "refs"}

_CITED: dict[str, SchemaDict] = {
    "ref": STRING,
    "item_type": STRING,
    "item_id": STRING,
    "version": maybe(STRING),
    "tier": TIER,
    "signer": STRING,
    "key_id": STRING,
    "verified": BOOLEAN,
    "changed": BOOLEAN,
    "yanked": BOOLEAN,
    "digest": STRING,
}
"""By what an item is cited, in a hit and on its own."""
HIT = record(
    rank=INTEGER,
    **_CITED,
    score=NUMBER,
    parts=OBJECT,
    path=STRING,
    start_line=INTEGER,
    end_line=INTEGER,
    heading=STRINGS,
    text=STRING,
    cut=BOOLEAN,
)
HITS = record(
    query=STRING,
    complete=BOOLEAN,
    hits={"type": "array", "items": HIT},
    tiers=OBJECTS,
    refused=INTEGER,
    notices=STRINGS,
    continuation=maybe(STRING),
)
CONTENT = record(
    **_CITED,
    signed_at=STRING,
    private=BOOLEAN,
    permissions=OBJECTS,
    inputs=OBJECTS,
    metadata=OBJECT,
    content=STRING,
    continuation=maybe(STRING),
)
FINDINGS = record(valid=BOOLEAN, findings=OBJECTS)
STATUS = record(
    tiers=OBJECTS,
    model=OBJECT,
    cache=OBJECT,
    errors=OBJECTS,
    service=OBJECT,
    project=STRING,
    trusted_signers=INTEGER,
    writable=BOOLEAN,
)
PUBLISHED = record(published=OBJECTS, refused=OBJECTS, searchable=BOOLEAN)
