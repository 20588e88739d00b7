"""The state of a workspace's index: counts, the last run, and each document."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kiwi_rag.collection import Collection
from kiwi_rag.errors import MalformedEnvelope, Refused
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.model import Filters, StoredItem, sha256_hex
from kiwi_rag.search.verify import verify_stored
from kiwi_rag.signing.statement import parse_index
from kiwi_rag.sources.source import COMPLETE, RUN
from kiwi_rag.sources.workspace.config import WorkspaceConfig
from kiwi_rag.stores.base import StoreStatus, VectorStore


async def collect_workspace_status(config: WorkspaceConfig, tier: Collection[VectorStore] | None) -> Mapping[str, Any]:
    """Return counts, the state of the last run, and the path and size in bytes of the index, JSON-ready.

    `tier` is None when there is no index yet: counts are 0 and texts empty then.
    """
    if tier is None:
        return _state(config, StoreStatus(0, 0, ""), {}, "")
    status = await tier.store.status()
    documents = await tier.store.list(Filters())
    types = Counter(map(_type_of, documents))
    kind = tier.store.capabilities.kind
    return _state(config, status, dict(sorted(types.items())), tier.states.note(RUN) if tier.states else "", kind)


def _state(
    config: WorkspaceConfig, status: StoreStatus, types: Mapping[str, int], run: str, kind: str = "local"
) -> Mapping[str, Any]:
    path = str(Path(str(status.details["path"])).parent) if "path" in status.details else ""
    return {
        "workspace": config.name,
        "root": str(config.root),
        "documents": status.items,
        "passages": status.passages,
        "file_types": types,
        "run": run,
        "complete": run == COMPLETE if kind == "local" else not status.problems,  # several users run a shared one
        "model": status.fingerprint,
        "store": kind,
        "path": path,
        "bytes": _size(Path(path)) if path else 0,
        "problems": list(status.problems),
    }


async def documents(workspace: Collection[VectorStore], filters: Filters) -> tuple[list[dict[str, Any]], int]:
    """Return a row for each document that verifies, JSON-ready, and how many documents do not.

    ``sha256`` is the digest of the file after redaction, ``passages_sha256`` that of its passages' digests in order: two indexes with
    the same rows have the same content.
    """
    rows: list[dict[str, Any]] = []
    refused = 0
    trust = workspace.trust()
    about = trust, workspace.audience, workspace.policy, workspace.workspace
    for stored in await workspace.store.list(filters):
        try:
            signed = verify_stored(stored, stored.ref, *about).verified.statement
        except Refused:
            refused += 1
            continue
        passages = sha256_hex("".join(signed.passages).encode())
        facts = {name: signed.metadata.get(name, "") for name in ("file_type", "title", "service", "domain")}
        counted = {"passages": len(signed.passages), "passages_sha256": passages}
        rows.append({"path": signed.path, **facts, "sha256": signed.digests[signed.path], **counted})
    return rows, refused


def _type_of(stored: StoredItem) -> str:
    """Return a document's type for counting: a name in `FILE_TYPES`, as the statement is not verified here."""
    try:
        file_type = parse_index(stored.envelope.payload).metadata.get("file_type", "")
    except MalformedEnvelope:
        return "unreadable"
    return file_type if file_type in FILE_TYPES else "unreadable"


def _size(folder: Path) -> int:
    sizes = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # SQLite removes its log when it is closed
                sizes += (Path(parent) / name).stat().st_size
    return sizes
