"""A workspace's documents: update their index, search them, list them, and report the state of the index."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from kiwi_rag.collection import Collection
from kiwi_rag.config import PROJECT_FOLDER
from kiwi_rag.errors import MalformedEnvelope, NotFound, Refused
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.ingest import IngestContext, sync
from kiwi_rag.ingest.sync import NO_CALLBACKS, Callbacks
from kiwi_rag.model import Filters, SearchQuery, SearchReply, StoredItem, sha256_hex
from kiwi_rag.search.verify import verify_stored
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.signing.statement import parse_index
from kiwi_rag.sources.source import COMPLETE, RUN, SyncReport
from kiwi_rag.sources.workspace import watch as watching
from kiwi_rag.sources.workspace.config import WorkspaceConfig
from kiwi_rag.stores.base import StoreStatus, VectorStore


async def open_for_writing(
    workspace: Workspace, ask_passphrase: Callable[[], str] = str, *, rebuild: bool = False
) -> IngestContext:
    """Create the index if there is none, empty it if `rebuild` is set, and return what writes to it."""
    await workspace.prepare()
    writer = workspace.writer(ask_passphrase)  # first: it fails without a signing key, and nothing must be removed then
    if rebuild:
        await workspace.tier.clear()
    return writer


async def update(
    workspace: Workspace,
    writer: IngestContext,
    paths: Sequence[str] | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
    *,
    prune: bool = False,
) -> SyncReport:
    """Update the index from all files, or those at `paths`; a shared one is pruned only if `prune` is set."""
    whole = prune or not workspace.is_shared
    return await sync(workspace.source, workspace.tier, writer, callbacks, paths=paths, prune=whole)


def watch(workspace: Workspace, writer: IngestContext, stop: asyncio.Event) -> AsyncGenerator[object]:
    """Update the index on every change of a file until `stop` is set; yield the outcome of each update."""
    return watching.watch(workspace.config, partial(update, workspace, writer), stop)


async def load_model(app: Services) -> None:
    """Load the embedding model; a query through the cache would not load it."""
    await getattr(app.embed, "inner", app.embed).query("ready")


def outer_workspace(workspace: Workspace) -> Path | None:
    """Return the folder of the indexed workspace around this one, if there is one."""
    root = workspace.config.root.resolve()
    return next((folder for folder in root.parents if (folder / PROJECT_FOLDER / "vectors").is_dir()), None)


async def search(workspace: Workspace, query: SearchQuery, update_hint: str = "kiwi workspace index") -> SearchReply:
    """Search the documents.

    Raises
    ------
    NotFound
        When nothing was indexed yet; the hint is `update_hint`.
    """
    if not workspace.is_indexed:
        raise NotFound(f"{workspace.config.root} is not indexed yet", hint=update_hint)
    return await workspace.searcher.search(query)


async def collect_workspace_status(workspace: Workspace) -> Mapping[str, Any]:
    """Return counts, the state of the last run, and the path and size in bytes of the index, JSON-ready.

    Without an index, counts are 0 and texts empty.
    """
    config = workspace.config
    if not workspace.is_indexed:
        return _state(config, StoreStatus(0, 0, ""), {}, "")
    tier = workspace.tier
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

    ``sha256`` is the digest of the file after redaction, ``passages_sha256`` that of its passages' digests in order:
    two indexes with the same rows have the same content.
    """
    about = workspace.trust(), workspace.audience, workspace.policy, workspace.workspace
    rows: list[dict[str, Any]] = []
    refused = 0
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
