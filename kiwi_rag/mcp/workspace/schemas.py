"""JSON Schemas of what the tools of a workspace take and give."""

from __future__ import annotations

from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.mcp.schemas import BOOLEAN, INTEGER, NUMBER, OBJECT, OBJECTS, STRING, STRINGS, Schema, maybe, record, text

QUERY = text("What is looked for, in plain words; identifiers and operations too.", minLength=1, maxLength=10_000)
LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": 50, "default": 5, "description": "Passages to show."}
BUDGET: Schema = {
    "type": "integer",
    "minimum": 50,
    "maximum": 100_000,
    "default": 4_000,
    "description": "About how many tokens of text the answer may have.",
}
SEARCH: dict[str, Schema] = {
    "query": QUERY,
    "file_type": text("Only files of this type.", enum=list(FILE_TYPES)),
    "service": text("Only files about this service, for instance svc-check-in.", maxLength=200),
    "domain": text("Only files of this domain.", maxLength=200),
    "path": text("Only this file or folder, or paths that this pattern with * matches.", maxLength=1_024),
    "limit": LIMIT,
    "max_tokens": BUDGET,
}
ALIASES = {
    "q": "query", "text": "query", "top_k": "limit", "k": "limit", "n_results": "limit", "num_results": "limit",
    "max_results": "limit", "type": "file_type",
}  # fmt: skip

HIT = record(
    rank=INTEGER,
    path=STRING,
    start_line=INTEGER,
    end_line=INTEGER,
    heading=STRINGS,
    kind=STRING,
    file_type=STRING,
    title=STRING,
    service=STRING,
    domain=STRING,
    last_modified=STRING,
    git_commit=STRING,
    score=NUMBER,
    parts=OBJECT,
    changed=maybe(BOOLEAN),
    verified=BOOLEAN,
    signer=STRING,
    key_id=STRING,
    digest=STRING,
    text=STRING,
    cut=BOOLEAN,
)
HITS = record(
    query=STRING,
    kind=STRING,
    complete=BOOLEAN,
    hits={"type": "array", "items": HIT},
    index=OBJECT,
    refused=OBJECTS,
    gone=STRINGS,
    unfinished=BOOLEAN,
    read_as=OBJECT,
    notices=STRINGS,
)
STATS = record(
    workspace=STRING,
    root=STRING,
    documents=INTEGER,
    passages=INTEGER,
    file_types=OBJECT,
    run=STRING,
    complete=BOOLEAN,
    store=STRING,
    model=STRING,
    path=STRING,
    bytes=INTEGER,
    problems=STRINGS,
)
