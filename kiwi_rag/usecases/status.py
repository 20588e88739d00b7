"""The state of all parts of Kiwi: tiers, model, cache, latest errors and local service. Starts and loads nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kiwi_rag import render
from kiwi_rag.errors import KiwiError
from kiwi_rag.telemetry import logs

if TYPE_CHECKING:
    from kiwi_rag.services import Services

PROBE_SECONDS = 2.0
"""How long to wait for a server's answer."""
MAX_ERRORS = 10


async def collect_status(app: Services, service: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of tiers, model, cache, last errors and service, JSON-ready. Starts and loads nothing.

    `service` is the state of the local service, from `kiwi_rag.local_service.client.state`.
    """
    errors = await asyncio.to_thread(logs.read_last_errors, app.user_dir, MAX_ERRORS)
    return {
        "tiers": await tier_rows(app),
        "model": model_state(app),
        "cache": await asyncio.to_thread(cache_state, app),
        "errors": [_error_row(record) for record in errors],
        "service": dict(service),
        "project": str(app.project_dir or ""),
        "trusted_signers": len(app.trust.signers),
    }


def model_state(app: Services) -> dict[str, Any]:
    """Return which model is used and where it is, JSON-ready; loads nothing and contacts no server."""
    name = app.settings.embedding_provider
    state = {"provider": name, "name": app.settings.embedding_model, "fingerprint": "", "place": "", "problem": ""}
    try:
        embed = app.embed
    except KiwiError as error:
        return {**state, "problem": error.message}
    if app.settings.embedding_dimension:  # if 0, a remote provider would contact its server
        state |= {"name": embed.fingerprint.model, "fingerprint": str(embed.fingerprint)}
    return {**state, "place": embed.place, "problem": "" if embed.place else "its files are not on this machine"}


def cache_state(app: Services) -> dict[str, Any]:
    """Return the path and size of the cache, JSON-ready; only Kiwi's own files in that folder are counted."""
    folder = app.settings.cache_path
    size = 0
    for pattern in ("models/**/*", "embeddings.sqlite*", "usage.jsonl*", "probes/*"):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):  # removed meanwhile, or not readable
                size += path.lstat().st_size if path.is_file() else 0
    return {"path": str(folder), "bytes": size}


def _error_row(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "at": record["at"],
        "what": record.get("command") or record.get("tool") or record.get("logger", ""),
        "code": record.get("code") or record.get("exception", ""),
        "message": record.get("message", ""),
    }


async def tier_rows(app: Services) -> list[dict[str, Any]]:
    """Return a row for each tier, and for the workspace's index if there is one, JSON-ready; starts nothing."""
    local = [await _local_row(app, name) for name in app.source_names("local")]
    return [*local, *await _workspace_rows(app), await _registry_row(app)]


async def _local_row(app: Services, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"tier": name, "items": "", "passages": "", "model": "", "problems": ""}
    try:
        state = await app.local(name).store.status()
    except KiwiError as error:
        return {**row, "problems": error.message}
    counts = {"items": state.items, "passages": state.passages, "model": state.fingerprint}
    return {**row, **counts, "problems": "; ".join(state.problems)}


async def _workspace_rows(app: Services) -> list[dict[str, Any]]:
    from kiwi_rag.services.workspace import TIER, Workspace
    from kiwi_rag.sources.workspace.report import BEGUN, RUN

    row: dict[str, Any] = {"tier": TIER, "documents": "", "passages": "", "model": "", "problems": ""}
    async with Workspace(app) as workspace:
        try:
            if not workspace.is_indexed:
                return []
            async with asyncio.timeout(PROBE_SECONDS):
                store = workspace.tier.store
                state, run = await store.status(), await store.get_note(RUN)
        except TimeoutError:
            return [{**row, "problems": f"the index did not answer within {PROBE_SECONDS:g} s"}]
        except KiwiError as error:
            return [{**row, "problems": render.safe(error.message)}]
    unfinished = ["the last index run did not finish: continue it with kiwi workspace index"] if run == BEGUN else []
    counts = {"documents": state.items, "passages": state.passages, "model": state.fingerprint}
    return [{**row, **counts, "problems": "; ".join([*state.problems, *unfinished])}]


async def _registry_row(app: Services) -> dict[str, Any]:
    from kiwi_rag.registry import server

    if not app.registry_connection.is_embedded:
        where = {"tier": "registry", "where": render.safe(app.registry_connection.description)}
        return {**where, **await _probe(app)}
    state = server.server_state(app.registry_dir)
    return {
        "tier": "registry",
        "where": f"embedded, {render.safe(str(app.registry_dir))}",
        "state": "running" if state.running else "not running",
        "problems": "",
    }


async def _probe(app: Services) -> dict[str, Any]:
    """Return whether a registry that is not embedded answers within `PROBE_SECONDS`, and what it contains."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            status = await app.registry().store.status()
    except TimeoutError:
        return {"state": "silent", "problems": f"the registry did not answer within {PROBE_SECONDS:g} s"}
    except KiwiError as error:
        return {"state": "failed", "problems": render.safe(error.message)}
    return {"state": "answers", "items": status.items, "problems": "; ".join(status.problems)}
