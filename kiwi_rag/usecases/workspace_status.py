"""How the index of a workspace stands."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kiwi_rag.collection import Tier
from kiwi_rag.errors import MalformedEnvelope, Refused
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.model import Filters, StoredItem, sha256_hex
from kiwi_rag.search.documents import WorkspaceSearcher
from kiwi_rag.signing.document_statement import parse
from kiwi_rag.sources.workspace.config import WorkspaceConfig
from kiwi_rag.sources.workspace.report import COMPLETE, RUN
from kiwi_rag.stores.base import FileStore, StoreStatus


async def standing(place: WorkspaceConfig, tier: Tier[FileStore] | None) -> Mapping[str, Any]:
    """Return counts, the state of the last run and the index's place and size in bytes, JSON-ready.

    Without a tier there is no index yet, and all of it is nothing.
    """
    if tier is None:
        return _standing(place, StoreStatus(0, 0, ""), {}, "")
    status = await tier.store.status()
    documents = await tier.store.list(Filters())
    types = Counter(map(_type_of, documents))
    kind = tier.store.capabilities.kind
    return _standing(place, status, dict(sorted(types.items())), await tier.store.get_note(RUN), kind)


def _standing(
    place: WorkspaceConfig, status: StoreStatus, types: Mapping[str, int], run: str, kind: str = "local"
) -> Mapping[str, Any]:
    path = str(Path(str(status.details["path"])).parent) if "path" in status.details else ""
    return {
        "workspace": place.name,
        "root": str(place.root),
        "documents": status.items,
        "passages": status.passages,
        "file_types": types,
        "run": run,
        "complete": run == COMPLETE if kind == "local" else not status.problems,  # a shared one's runs are many
        "model": status.fingerprint,
        "store": kind,
        "path": path,
        "bytes": _size(Path(path)) if path else 0,
        "problems": list(status.problems),
    }


async def documents(searcher: WorkspaceSearcher, filters: Filters) -> tuple[list[dict[str, Any]], int]:
    """Return what the index holds of each document that verifies, by path, JSON-ready; and how many do not.

    ``sha256`` is of the file, ``passages_sha256`` of the digests of its passages one after the other: two indexes that
    give the same hold the same.
    """
    rows: list[dict[str, Any]] = []
    refused = 0
    for stored in await searcher.tier.store.list(filters):
        try:
            read = searcher.verify_document(stored.ref.item_id, stored).statement
        except Refused:
            refused += 1
            continue
        passages = sha256_hex("".join(read.passages).encode())
        facts = {name: read.metadata.get(name, "") for name in ("file_type", "title", "service", "domain")}
        counted = {"passages": len(read.passages), "passages_sha256": passages}
        rows.append({"path": read.path, **facts, "sha256": read.content_sha256, **counted})
    return rows, refused


def _type_of(stored: StoredItem) -> str:
    """Return a document's type for counting; nothing is verified, so nothing but a type's own name is returned."""
    try:
        said = parse(stored.envelope).metadata.get("file_type", "")
    except MalformedEnvelope:
        return "unreadable"
    return said if said in FILE_TYPES else "unreadable"


def _size(folder: Path) -> int:
    sizes = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # SQLite's log comes and goes
                sizes += (Path(parent) / name).stat().st_size
    return sizes
