"""The whole JSON Schemas of what tools answer; a server lists only the names of their members."""

from __future__ import annotations

from typing import Any

from kiwi_rag.collection import RANKS

SchemaDict = dict[str, Any]
_TYPES: dict[str, SchemaDict] = {name: {"type": name} for name in ("string", "number", "integer", "boolean", "object")}
_TYPES |= {f"{name}s": {"type": "array", "items": _TYPES[name]} for name in ("string", "object")}
STRING, OBJECT, BOOLEAN, INTEGER = (_TYPES[name] for name in ("string", "object", "boolean", "integer"))


def record(**members: SchemaDict | str) -> SchemaDict:
    """Return the schema of an object with these members, all required.

    Each argument is the schema of the member of its name; or, under the name of a type (integer, strings, …), a text
    with the names of the members of that type.
    """
    properties: dict[str, SchemaDict] = {}
    for name, schema in members.items():
        properties |= dict.fromkeys(schema.split(), _TYPES[name]) if isinstance(schema, str) else {name: schema}
    return {"type": "object", "properties": properties, "required": list(properties)}


def nullable(schema: SchemaDict) -> SchemaDict:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


_TIER: SchemaDict = {"type": "string", "enum": list(RANKS)}
_VERSION, _CITED = nullable(STRING), "ref item_type item_id signer key_id digest"
_ITEM_HIT = record(
    string=f"{_CITED} title path file text",
    version=_VERSION,
    tier=_TIER,
    boolean="verified changed yanked truncated",
    integer="rank start_line end_line chunk_index more_duplicates",
    total_chunks=nullable(INTEGER),
    number="score",
    object="parts",
    strings="heading duplicates",
)
_ITEM_HITS = record(
    string="query",
    boolean="complete",
    hits={"type": "array", "items": _ITEM_HIT},
    objects="tiers",
    integer="refused",
    object="corrections",
    strings="notices",
    close=nullable(BOOLEAN),
    continuation=nullable(STRING),
)
_CONTENT = record(
    string=f"{_CITED} signed_at file content",
    strings="files",
    version=_VERSION,
    tier=_TIER,
    boolean="verified changed yanked private",
    objects="permissions inputs",
    object="metadata",
    continuation=nullable(STRING),
)
_FINDINGS = record(boolean="valid", objects="findings")
_STATE = record(
    objects="tiers errors",
    object="model cache service",
    string="project",
    integer="trusted_signers",
    boolean="writable",
)
_PUBLISHED = record(objects="published refused", boolean="searchable")

_HIT = record(
    integer="rank start_line end_line chunk_index total_chunks more_duplicates",
    string="path kind file_type title service domain last_modified git_commit signer key_id digest text",
    strings="heading duplicates",
    number="score",
    object="parts",
    changed=nullable(BOOLEAN),
    boolean="verified truncated",
)
_HITS = record(
    string="query kind",
    boolean="complete unfinished",
    number="embedded",
    hits={"type": "array", "items": _HIT},
    object="index corrections",
    objects="refused",
    strings="missing_files notices",
    close=nullable(BOOLEAN),
    continuation=nullable(STRING),
)
_STATS = record(
    string="workspace root run store model path",
    integer="documents passages bytes",
    number="embedded",
    object="file_types",
    boolean="complete",
    strings="problems",
)
_REPORT = record(
    strings="indexed removed",
    integer="unchanged passages embedded",
    objects="moved skipped failed warnings",
    boolean="complete",
)
_JOB_STATE = record(
    string="job unit",
    state={"type": "string", "enum": ["running", "done", "failed", "cancelled"]},
    integer="done total",
    report=nullable(_REPORT),
    error=nullable(OBJECT),
)
_ANSWER = record(
    string="question cut",
    answer=nullable(STRING),
    model=nullable(STRING),
    boolean="found complete",
    objects="sentences sources",
    object="tokens",
    strings="notices",
)

_LINES: SchemaDict = {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 2}
_CHUNK = record(
    string="text title indexed_at signer key_id digest changed",
    source=record(string="file commit", lines=_LINES, offset=nullable(_LINES)),
    strings="heading",
    number="score",
)
_DOCS = record(
    string="library version",
    chunks={"type": "array", "items": _CHUNK},
    strings="notices",
    close=nullable(BOOLEAN),
    continuationToken=nullable(STRING),
)
_LIBRARIES = record(libraries={"type": "array", "items": record(string="id title version")}, strings="problems")
_LIBRARY = record(
    string="id title version origin root last_indexed commit",
    status={"type": "string", "enum": ["NotStarted", "InProgress", "Completed", "Failed"]},
    strings="aliases",
    stats=_STATS,
)

_RECALLED = record(
    integer="rank",
    string="id session_id timestamp text",
    thread_id=nullable(STRING),
    score=nullable({"type": "number"}),
    boolean="truncated",
)
_EXCERPT = record(string="text session_id", integer="tokens", number="score", strings="exchange_ids")
_ABOUT: dict[str, Any] = {
    "string": "query", "boolean": "complete", "close": nullable(BOOLEAN), "strings": "notices"
}  # fmt: skip

WHOLE = {
    "remember_exchange": record(string="id pending", boolean="is_new", objects="redacted"),
    "search_exchanges": record(**_ABOUT, hits={"type": "array", "items": _RECALLED}),
    "get_relevant_context": record(**_ABOUT, integer="tokens", excerpts={"type": "array", "items": _EXCERPT}),
    "forget": record(strings="forgotten"),
    "resolve-library-id": _LIBRARIES,
    "resolve_library_id": _LIBRARIES,
    "query-docs": _DOCS,
    "get_library_docs": _DOCS,
    "list_projects": record(projects={"type": "array", "items": _LIBRARY}, strings="problems"),
    "project_status": _LIBRARY,
    "reindex_project": _JOB_STATE,
    "kiwi_search": _ITEM_HITS,
    "kiwi_get": _CONTENT,
    "kiwi_validate": _FINDINGS,
    "kiwi_status": _STATE,
    "kiwi_publish": _PUBLISHED,
    "workspace_search": _HITS,
    "search_markdown": _HITS,
    "workspace_index_stats": _STATS,
    "reindex_documents": _JOB_STATE,
    "update_files": _JOB_STATE,
    "ask": _ANSWER,
}
"""Tool → the schema of its answer."""
